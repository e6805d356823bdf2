package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/golang-jwt/jwt/v5"

	"github.com/idem-go/idempotency/idem"
)

type options struct{ outputs, url, token string }

// run is one run of the command.
type run struct {
	ctx              context.Context
	say              func(string, ...any)
	name             string // begins the keys of all that it makes
	url, token       string
	payments, orders map[string]string // the outputs of the stacks
	tenants          []string          // for those that the API may take the caller
	config           aws.Config
	db               *dynamodb.Client // nil without outputs
	queues           *sqs.Client
	patience         time.Duration // for an order: its message may be delivered twice
	delay            time.Duration // of the first order, until its record was there
	sent             int           // orders that may be in the queue
	last             time.Time     // when one of them was sent
	others           bool          // use the queue
	made             []made        // what is to be deleted
	left             []string      // what is not, by its name
	failed           bool
}

type made struct {
	what   string
	remove func(context.Context) error
}

// find finds what the flags name, and credentials.
func (r *run) find(o options) (err error) {
	if (o.outputs == "") == (o.url == "") { // the URL of another deployment would not fit the outputs
		return errors.New("set either -outputs, whose file has the URL of the API, or -url")
	}
	r.name = "smoke-" + time.Now().UTC().Format("20060102T150405Z") + "-" + rand.Text()[:8]
	if r.config, err = config.LoadDefaultConfig(r.ctx); err != nil {
		return err
	}
	if o.outputs != "" {
		if err := r.read(o.outputs); err != nil {
			return err
		}
	}
	r.url, r.token = strings.TrimSuffix(cmp.Or(o.url, r.payments["URL"]), "/"), o.token
	if in := regexp.MustCompile(`\.execute-api\.([a-z0-9-]+)\.`).FindStringSubmatch(r.url); in != nil {
		r.config.Region = in[1]
	}
	if o.token != "" {
		claims := jwt.MapClaims{}
		if _, _, err := jwt.NewParser().ParseUnverified(o.token, claims); err != nil {
			return fmt.Errorf("-token is no JSON Web Token: %w", err)
		}
		r.tenants = nil
		for _, v := range claims { // the deployment knows which one
			r.tenants = append(r.tenants, fmt.Sprint(v))
		}
	}
	if o.token != "" && o.outputs == "" {
		return nil // without credentials of AWS
	}
	if _, err := r.config.Credentials.Retrieve(r.ctx); err != nil || r.config.Region == "" {
		return fmt.Errorf("there are no credentials, or there is no region: set AWS_PROFILE and AWS_REGION (%v)", err)
	}
	if o.outputs != "" {
		r.db, r.queues = dynamodb.NewFromConfig(r.config), sqs.NewFromConfig(r.config)
	}
	return nil
}

// The names of the stacks, after a prefix.
const paymentsStack, ordersStack = "payments-api", "orders-worker"

// read reads the outputs of the two stacks with the same prefix. It refuses a file that has further ones.
func (r *run) read(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%w: cdk deploy --outputs-file writes it, or local up -outputs", err)
	}
	var stacks map[string]map[string]string
	if err := json.Unmarshal(text, &stacks); err != nil {
		return fmt.Errorf("%s has no outputs of stacks: %w", path, err)
	}
	var payments, orders []string
	for _, name := range slices.Sorted(maps.Keys(stacks)) {
		switch {
		case strings.HasSuffix(name, paymentsStack):
			payments = append(payments, name)
		case strings.HasSuffix(name, ordersStack):
			orders = append(orders, name)
		}
	}
	if len(payments) == 0 || len(orders) == 0 {
		return fmt.Errorf("%s has not the outputs of both stacks of the example, %s and %s", path, paymentsStack, ordersStack)
	}
	prefix := strings.TrimSuffix(payments[0], paymentsStack)
	if len(payments) > 1 || len(orders) > 1 || orders[0] != prefix+ordersStack {
		return fmt.Errorf("%s has stacks of several deployments, %s: write one of them to a file of its own, "+
			"with cdk deploy --all -c prefix=... --outputs-file", path, strings.Join(append(payments, orders...), ", "))
	}
	r.payments, r.orders = stacks[payments[0]], stacks[orders[0]]
	topic, err := arn.Parse(r.payments["AlarmTopic"])
	if err != nil {
		return fmt.Errorf("%s has no output AlarmTopic of %s: %w", path, payments[0], err)
	}
	// IAM lets in callers of the API's account alone.
	r.config.Region, r.tenants = topic.Region, []string{topic.AccountID, idem.SingleTenant}
	return nil
}

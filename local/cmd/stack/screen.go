package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os/user"
	"slices"
	"sync"

	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/local/aws/iam"
	"github.com/idem-go/idempotency/local/cloud"
)

// screen is what was printed about what runs. After an update only what is new is printed.
type screen struct {
	say, more func(string, ...any) // what -quiet leaves out is more
	printed   map[string]bool
	records   sync.Map // the stores of the tables of records, by their names
	token     string   // that was printed; empty if no route takes one
}

// once prints each line once.
func (s *screen) once(print func(string, ...any)) func(string, ...any) {
	return func(format string, args ...any) {
		if line := fmt.Sprintf(format, args...); !s.printed[line] {
			s.printed[line] = true
			print("%s", line)
		}
	}
}

// stores are those of the tables of records.
func (s *screen) stores() (all []*dynamostore.AdminStore) {
	for _, store := range s.records.Range {
		all = append(all, store.(*dynamostore.AdminStore))
	}
	return all
}

// describe prints where what runs is called, and more about what it is.
func (s *screen) describe(ctx context.Context, r *cloud.Running) error {
	p, say, more := r.Plan(), s.once(s.say), s.once(s.more)
	for _, kind := range slices.Sorted(maps.Keys(p.Silent)) {
		more("without behaviour here: %d %s", len(p.Silent[kind]), kind)
	}
	for _, note := range p.Notes {
		more("%s", note)
	}
	for _, t := range p.Tables {
		more("table    %s", t.Name)
		if _, known := s.records.Load(t.Name); known || dynamostore.Check(ctx, r.DynamoDB, t.Name) != nil {
			continue // it is known already, or is not one of records
		}
		store, err := dynamostore.NewAdminStore(r.DynamoDB, t.Name, nil)
		if err != nil {
			return err
		}
		s.records.Store(t.Name, store)
		url, err := consoleOf(r, store)
		if err != nil {
			return err
		}
		say("console  %s of %s", url, t.Name)
	}
	for _, q := range p.Queues {
		more("queue    %s", p.QueueURL(q.Name))
	}
	for _, t := range p.Topics {
		more("topic    %s", t.Name)
	}
	for _, f := range p.Functions {
		more("function %s", f.Name)
	}
	for _, s := range p.Schedules {
		more("schedule %s: %s", s.Expression, s.Function)
	}
	for _, a := range p.APIs {
		url := r.Endpoints.APIs[a.Key]
		if a.Stage != "" && a.Stage != "$default" {
			url += "/" + a.Stage
		}
		say("api      %s of %s", url, a.Name)
		for _, route := range slices.Sorted(maps.Keys(a.Routes)) {
			more("route    %s  %s", route, cmp.Or(string(a.Routes[route].Auth), "open"))
		}
	}
	for _, stack := range slices.Sorted(maps.Keys(p.Outputs)) {
		for _, name := range slices.Sorted(maps.Keys(p.Outputs[stack])) {
			more("output   %s.%s = %s", stack, name, p.Outputs[stack][name])
		}
	}
	return s.callers(r, p, say)
}

// callers prints what callers need: a token if a route takes one, the variables in one block, and how to call a
// function that nothing invokes.
func (s *screen) callers(r *cloud.Running, p *cloud.Plan, say func(string, ...any)) (err error) {
	jwt, invoked := false, map[string]bool{}
	for _, a := range p.APIs {
		for _, route := range a.Routes {
			jwt, invoked[route.Function] = jwt || route.Auth == cloud.JWT, true
			if route.Authorizer != nil {
				invoked[route.Authorizer.Name] = true
			}
		}
	}
	for _, m := range p.Mappings {
		invoked[m.Function] = true
	}
	for _, s := range p.Schedules {
		invoked[s.Function] = true
	}
	if jwt && s.token == "" {
		if s.token, err = r.Issuer.Token(defaultTenant, nil, tokenLifetime); err != nil {
			return err
		}
		say("\na token of %s: %s", defaultTenant, s.token)
	}
	say("\nexport AWS_REGION=%s AWS_DEFAULT_REGION=%[1]s AWS_ACCESS_KEY_ID=%s AWS_SECRET_ACCESS_KEY=%s", iam.Region,
		cloud.AccessKey, cloud.SecretKey)
	table := "" // the first one of records
	for _, t := range p.Tables {
		if _, ok := s.records.Load(t.Name); ok {
			table = cmp.Or(table, t.Name)
		}
	}
	for _, v := range [][2]string{{schema.EnvTable, table}, {"AWS_ENDPOINT_URL", r.Endpoints.Functions},
		{"AWS_ENDPOINT_URL_DYNAMODB", r.Endpoints.DynamoDB}, {"AWS_ENDPOINT_URL_SQS", r.Endpoints.Queues}} {
		if v[1] != "" {
			say("export %s=%s", v[0], v[1])
		}
	}
	for _, f := range p.Functions {
		if !invoked[f.Name] {
			say("aws lambda invoke --endpoint-url %s --function-name %s --cli-binary-format raw-in-base64-out "+
				"--payload '{}' /dev/stdout", r.Endpoints.Functions, f.Name)
		}
	}
	return nil
}

// consoleOf serves the operators' pages of a table.
func consoleOf(r *cloud.Running, store *dynamostore.AdminStore) (string, error) {
	rc, err := reconcile.New(store, nil)
	if err != nil {
		return "", err
	}
	operator, err := user.Current()
	if err != nil {
		return "", err
	}
	pages, err := console.New(rc, &console.Options{Who: console.ThisMachine(operator.Username)})
	if err != nil {
		return "", err
	}
	return r.Serve(pages)
}

package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/outbox/eventbridgesender"
	"github.com/idem-go/idempotency/idem/outbox/snssender"
	"github.com/idem-go/idempotency/idem/outbox/sqssender"
	"github.com/idem-go/idempotency/idem/schema"
)

// sendersOf makes a sender for each route. A route leads from a destination's name to a
// queue's URL, a topic's ARN or an event bus's ARN.
func sendersOf(cfg aws.Config, routes, source string) (map[string]outbox.Sender, error) {
	var targets map[string]string
	if err := json.Unmarshal([]byte(routes), &targets); err != nil || len(targets) == 0 {
		return nil, fmt.Errorf(`%s is %q: use a JSON object such as {"orders": `+
			`"https://sqs.eu-central-1.amazonaws.com/111122223333/orders"}`,
			schema.EnvOutboxRoutes, routes)
	}
	senders := make(map[string]outbox.Sender, len(targets))
	for destination, target := range targets {
		sender, err := senderOf(cfg, target, source)
		if err != nil {
			return nil, fmt.Errorf("%s: destination %q: %w", schema.EnvOutboxRoutes, destination, err)
		}
		senders[destination] = sender
	}
	return senders, nil
}

func senderOf(cfg aws.Config, target, source string) (outbox.Sender, error) {
	parts := strings.SplitN(target, ":", 6)
	service := ""
	if len(parts) == 6 && parts[0] == "arn" {
		service = parts[2]
	}
	switch {
	case strings.HasPrefix(target, "https://"), strings.HasPrefix(target, "http://"):
		return sqssender.New(sqs.NewFromConfig(cfg), target)
	case service == "sns":
		return snssender.New(sns.NewFromConfig(cfg), target)
	case service == "events" && source == "":
		return nil, fmt.Errorf("it is an event bus, whose events need a source: set %s, such as com.example.orders",
			schema.EnvOutboxSource)
	case service == "events":
		return eventbridgesender.New(eventbridge.NewFromConfig(cfg), target, source)
	}
	return nil, fmt.Errorf("%q is not a queue URL, topic ARN or event bus ARN: use one of them", target)
}

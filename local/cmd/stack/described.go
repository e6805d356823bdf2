package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/local/cloud"
)

// described is a function that flags describe.
type described struct {
	name, pkg, queue  string
	routes            []string
	fifo, stream      bool
	schedule, timeout time.Duration
	env               map[string]string
}

// Defaults of functions and queues are those of infra.NewFunction and infra.NewQueue.
const (
	defaultTimeout   = 10 * time.Second
	maxTimeout       = 15 * time.Minute
	batchSize        = 10
	visibilityFactor = 6
	messageRetention = 4 * 24 * time.Hour
	deadRetention    = 14 * 24 * time.Hour
)

var notAlphanumeric = regexp.MustCompile(`[^A-Za-z0-9]`)

// idOf is the part of a name that a template's ids may have.
func idOf(name string) string { return notAlphanumeric.ReplaceAllString(name, "") }

// variableOf is the environment variable with a queue's URL: QUEUE_ORDER_EVENTS for order-events.
func variableOf(queue string) string {
	return "QUEUE_" + strings.ToUpper(notAlphanumeric.ReplaceAllString(queue, "_"))
}

// queues are the functions with a queue.
func queues(all []*described) (with []*described) {
	for _, f := range all {
		if f.queue != "" {
			with = append(with, f)
		}
	}
	return with
}

// resources of a template, by their ids.
type resources map[string]any

type object = map[string]any

func (r resources) add(id, kind string, properties object) object {
	made := object{"Type": kind, "Properties": properties}
	r[id] = made
	return made
}

func ref(id string) object { return object{"Ref": id} }

func attribute(id, name string) object { return object{"Fn::GetAtt": []string{id, name}} }

const tableID, apiID = "Records", "Api"

// addTable adds the table of records, which is the one of dynamostore.CreateTable.
func (r resources) addTable() {
	keys := func(hash, sort string) []object {
		return []object{{"AttributeName": hash, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}}
	}
	r.add(tableID, "AWS::DynamoDB::Table", object{
		"TableName": "idem",
		"AttributeDefinitions": []object{
			{"AttributeName": schema.PK, "AttributeType": "S"}, {"AttributeName": schema.SK, "AttributeType": "S"},
			{"AttributeName": schema.OpenShard, "AttributeType": "S"}, {"AttributeName": schema.OpenDue, "AttributeType": "N"},
		},
		"KeySchema": keys(schema.PK, schema.SK),
		"GlobalSecondaryIndexes": []object{{
			"IndexName": schema.OpenIndex, "KeySchema": keys(schema.OpenShard, schema.OpenDue),
			"Projection": object{"ProjectionType": "KEYS_ONLY"},
		}},
		"StreamSpecification":     object{"StreamViewType": "NEW_AND_OLD_IMAGES"},
		"TimeToLiveSpecification": object{"AttributeName": schema.ExpiresAt, "Enabled": true},
	})
}

// addFunction adds a function, its queue and what else invokes it.
func (r resources) addFunction(f *described, all []*described) {
	id := idOf(f.name) + "Function"
	env := object{schema.EnvTable: ref(tableID), schema.EnvFunctionTimeout: seconds(f.timeout)}
	routes := object{}
	for _, with := range queues(all) {
		env[variableOf(with.queue)] = ref(idOf(with.queue) + "Queue")
		routes[with.queue] = "${" + idOf(with.queue) + "Queue}"
	}
	if f.stream {
		if len(routes) > 0 {
			text, _ := json.Marshal(routes) // of texts
			env[schema.EnvOutboxRoutes] = object{"Fn::Sub": string(text)}
		}
		r.addMapping(idOf(f.name)+"Stream", id, attribute(tableID, "StreamArn"), object{
			"StartingPosition": "TRIM_HORIZON",
			"FilterCriteria":   object{"Filters": []object{{"Pattern": schema.OutboxFilter}}},
		})
	}
	if f.queue != "" {
		env[schema.EnvQueueBatchSize] = strconv.Itoa(batchSize)
		env[schema.EnvQueueRedelivery] = seconds(messageRetention + deadRetention)
		r.addQueue(f)
		r.addMapping(idOf(f.name)+"Messages", id, attribute(idOf(f.queue)+"Queue", "Arn"), object{"BatchSize": batchSize})
	}
	if minutes := int(f.schedule / time.Minute); minutes > 0 {
		rate := fmt.Sprintf("rate(%d minutes)", minutes)
		if minutes == 1 {
			rate = "rate(1 minute)"
		}
		r.add(idOf(f.name)+"Schedule", "AWS::Events::Rule", object{
			"ScheduleExpression": rate, "Targets": []object{{"Id": id, "Arn": attribute(id, "Arn")}},
		})
	}
	for name, value := range f.env {
		env[name] = value
	}
	r.add(id, "AWS::Lambda::Function", object{
		"FunctionName": f.name, "Runtime": "provided.al2023", "Timeout": int(f.timeout / time.Second),
		"Environment": object{"Variables": env},
	})["Metadata"] = object{cloud.PackageMetadata: f.pkg}
}

func (r resources) addMapping(id, function string, source, more object) {
	more["FunctionName"], more["EventSourceArn"] = ref(function), source
	more["FunctionResponseTypes"] = []string{"ReportBatchItemFailures"}
	r.add(id, "AWS::Lambda::EventSourceMapping", more)
}

// addQueue adds a function's queue with its dead-letter queue.
func (r resources) addQueue(f *described) {
	dead := idOf(f.queue) + "DeadLetters"
	for id, properties := range map[string]object{
		dead: {"QueueName": f.queue + "-dead", "MessageRetentionPeriod": int(deadRetention / time.Second)},
		idOf(f.queue) + "Queue": {
			"QueueName": f.queue, "MessageRetentionPeriod": int(messageRetention / time.Second),
			"VisibilityTimeout": int(visibilityFactor * f.timeout / time.Second),
			"RedrivePolicy":     object{"deadLetterTargetArn": attribute(dead, "Arn"), "maxReceiveCount": maxReceives},
		},
	} {
		if f.fifo {
			properties["QueueName"] = properties["QueueName"].(string) + ".fifo"
			properties["FifoQueue"] = true
		}
		r.add(id, "AWS::SQS::Queue", properties)
	}
}

// addRoutes adds a function's routes, to the one API that all functions have.
func (r resources) addRoutes(f *described, jwt bool) {
	if len(f.routes) == 0 {
		return
	}
	const kind = "AWS::ApiGatewayV2::"
	r.add(apiID, kind+"Api", object{"Name": "local", "ProtocolType": "HTTP"})
	r.add("Stage", kind+"Stage", object{"ApiId": ref(apiID), "StageName": "$default"})
	integration := idOf(f.name) + "Integration"
	r.add(integration, kind+"Integration", object{
		"ApiId": ref(apiID), "IntegrationType": "AWS_PROXY", "PayloadFormatVersion": "2.0",
		"IntegrationUri": attribute(idOf(f.name)+"Function", "Arn"),
	})
	auth := "NONE"
	if jwt {
		auth = "JWT"
	}
	for i, route := range f.routes {
		r.add(fmt.Sprintf("%sRoute%d", idOf(f.name), i+1), kind+"Route", object{
			"ApiId": ref(apiID), "RouteKey": route, "AuthorizationType": auth,
			"Target": object{"Fn::Sub": "integrations/${" + integration + "}"},
		})
	}
}

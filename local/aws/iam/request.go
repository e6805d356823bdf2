package iam

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Account and region of everything that runs here.
const (
	Account = "000000000000"
	Region  = "us-east-1"
)

// Request is one permission that a call needs.
type Request struct {
	Action   string // such as dynamodb:PutItem
	Resource string // its ARN; empty if the call does not name it
	// Context has values of conditions' keys, by the key in lower case. A key with no value is known to be absent.
	Context map[string][]string
}

const leadingKeys, enclosing = "dynamodb:leadingkeys", "dynamodb:enclosingoperation"

// everywhere are the conditions' keys that are the same for every request of a function.
var everywhere = map[string][]string{
	"aws:requestedregion": {Region}, "aws:principalaccount": {Account}, "aws:resourceaccount": {Account},
	"aws:securetransport": {"true"}, "aws:viaawsservice": {"false"}, "aws:principalisawsservice": {"false"},
	"aws:principaltype": {"AssumedRole"}, "aws:sourceaccount": nil, "aws:sourcearn": nil, "aws:calledvia": nil,
}

// ARN is that of what is here. A full ARN stays, with the region that DynamoDB Local leaves out.
func ARN(service, path string) string {
	if strings.HasPrefix(path, "arn:") {
		return strings.Replace(path, ":ddblocal:", ":"+Region+":", 1)
	}
	return "arn:aws:" + service + ":" + Region + ":" + Account + ":" + path
}

// Requests are the permissions that an HTTP request to DynamoDB, its streams, SQS or SNS needs, all of them. key names
// the partition key of a table; it is empty if that is not known. An error is about what is no such request.
func Requests(header http.Header, body []byte, key func(table string) string) ([]Request, error) {
	api, operation, _ := strings.Cut(header.Get("X-Amz-Target"), ".")
	switch api {
	case "DynamoDB_20120810", "DynamoDBStreams_20120810":
		return dynamodb(operation, body, key)
	case "AmazonSQS":
		var in struct{ QueueUrl, QueueName, SourceArn string }
		if err := json.Unmarshal(body, &in); err != nil {
			return nil, fmt.Errorf("%s of SQS: %w", operation, err)
		}
		return []Request{sqs(operation, cmp.Or(in.QueueUrl, in.QueueName, in.SourceArn))}, nil
	}
	form, err := url.ParseQuery(string(body))
	if operation = form.Get("Action"); err != nil || operation == "" {
		return nil, errors.New("the request names no operation of DynamoDB, SQS or SNS")
	}
	if form.Get("Version") == "2012-11-05" {
		return []Request{sqs(operation, cmp.Or(form.Get("QueueUrl"), form.Get("QueueName"), form.Get("SourceArn")))}, nil
	}
	q := Request{Action: "sns:" + strings.TrimSuffix(operation, "Batch"),
		Resource: cmp.Or(form.Get("TopicArn"), form.Get("TargetArn"), form.Get("ResourceArn"), form.Get("PhoneNumber"))}
	switch operation {
	case "CreateTopic":
		q.Resource = ARN("sns", form.Get("Name"))
	case "ListTopics", "ListSubscriptions":
		q.Resource = ARN("sns", "*") // as in AWS's own refusal
	}
	return []Request{q}, nil
}

// Invoke is the permission that an invocation of a function needs, by its name, with a version behind a colon if the
// call names one.
func Invoke(function string) Request {
	return Request{Action: "lambda:InvokeFunction", Resource: ARN("lambda", "function:"+function)}
}

// sqs is what an operation of SQS needs on a queue, which is a URL, a name or an ARN.
func sqs(operation, queue string) Request {
	q := Request{Action: "sqs:" + strings.TrimSuffix(operation, "Batch")}
	if i := strings.LastIndex(queue, "/"); i >= 0 {
		queue = queue[i+1:]
	}
	if queue != "" || operation == "ListQueues" {
		q.Resource = ARN("sqs", queue)
	}
	return q
}

// item has attributes, or a key.
type item map[string]json.RawMessage

// operand is what an operation does on one table.
type operand struct {
	TableName, IndexName, KeyConditionExpression string
	ExpressionAttributeNames                     map[string]string
	Item, Key, ExpressionAttributeValues         item
	// In batches.
	Keys          []item
	PutRequest    struct{ Item item }
	DeleteRequest struct{ Key item }
}

var equality = regexp.MustCompile(`([#\w.-]+)\s*=\s*(:\w+)`)

// keys are the values of the partition key with this name, if all of them are known. They are text, numbers, or bytes
// in base64.
func (o operand) keys(name string) (keys []string, known bool) {
	known = true
	add := func(value json.RawMessage) {
		typed := map[string]string{}
		known = json.Unmarshal(value, &typed) == nil && known
		keys = slices.AppendSeq(keys, maps.Values(typed))
	}
	for _, i := range append(o.Keys, o.Item, o.Key, o.PutRequest.Item, o.DeleteRequest.Key) {
		if i != nil {
			add(i[name])
		}
	}
	for _, found := range equality.FindAllStringSubmatch(o.KeyConditionExpression, -1) {
		if cmp.Or(o.ExpressionAttributeNames[found[1]], found[1]) == name {
			add(o.ExpressionAttributeValues[found[2]])
		}
	}
	return keys, known && len(keys) > 0
}

// keyed are the actions whose requests name partition keys.
var keyed = []string{"PutItem", "UpdateItem", "DeleteItem", "GetItem", "ConditionCheckItem", "Query", "BatchGetItem",
	"BatchWriteItem"}

// transacted are the actions of the items of a transaction.
var transacted = map[string]string{"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "Get": "GetItem",
	"ConditionCheck": "ConditionCheckItem"}

func dynamodb(operation string, body []byte, key func(string) string) (all []Request, err error) {
	var in struct {
		operand
		ResourceArn, TableArn, StreamArn, ShardIterator string
		RequestItems                                    map[string]List[operand]
		TransactItems                                   []map[string]operand
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("%s of DynamoDB: %w", operation, err)
	}
	add := func(action, path string, of ...operand) {
		q := Request{Action: "dynamodb:" + action, Context: map[string][]string{enclosing: nil}}
		if path != "" && !strings.HasPrefix(path, "arn:") {
			path = "table/" + path
		}
		if path != "" {
			q.Resource = ARN("dynamodb", path)
		}
		var keys []string
		known := true
		for _, o := range of {
			some, ok := o.keys(key(TableOf(q.Resource)))
			keys, known = append(keys, some...), known && ok
		}
		if known || !slices.Contains(keyed, action) {
			q.Context[leadingKeys] = keys
		}
		all = append(all, q)
	}
	switch operation {
	case "ExecuteStatement", "BatchExecuteStatement", "ExecuteTransaction":
		return nil, errors.New("permissions of PartiQL are not evaluated")
	case "TransactWriteItems", "TransactGetItems":
		for _, one := range in.TransactItems {
			for name, o := range one {
				add(transacted[name], o.TableName, o)
				all[len(all)-1].Context[enclosing] = []string{operation}
			}
		}
	case "BatchWriteItem", "BatchGetItem":
		for _, table := range slices.Sorted(maps.Keys(in.RequestItems)) {
			add(operation, table, in.RequestItems[table]...)
		}
	case "ListTables":
		add(operation, "*") // as in AWS's own refusal
	case "DescribeStream", "GetShardIterator", "GetRecords", "ListStreams":
		table := cmp.Or(in.TableName, TableOf(in.StreamArn), TableOf(in.ShardIterator))
		if table != "" {
			table += "/stream/local"
		}
		add(operation, table)
	default:
		path := cmp.Or(in.TableName, in.ResourceArn, in.TableArn)
		if in.IndexName != "" {
			path += "/index/" + in.IndexName
		}
		add(operation, path, in.operand)
	}
	return all, nil
}

// TableOf is the name of a table by its ARN, or by that of its index or stream.
func TableOf(arn string) string {
	_, name, _ := strings.Cut(arn, ":table/")
	name, _, _ = strings.Cut(name, "/")
	return name
}

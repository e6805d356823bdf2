package iam

import (
	"slices"
	"strings"
)

// Role is what a function runs as.
type Role struct {
	Name     string
	Policies []Policy
	// NotEvaluated names policies that it has too, and that are not known here.
	NotEvaluated []string
}

// Outcome is what the policies of a role say to a request.
type Outcome int

const (
	Missing Outcome = iota // no policy allows it
	Denied                 // a policy denies it
	AsFar                  // the policies allow it as far as they are evaluated
	Granted                // a policy allows it
)

// Decision is an outcome with its reason: conditions that are not met if it is Missing, the policy if it is Denied,
// what is not evaluated if it is AsFar.
type Decision struct {
	Outcome
	Why string
}

// Granted says whether the request passes.
func (d Decision) Granted() bool { return d.Outcome >= AsFar }

// Allows says what the role's policies say to a request.
func (r Role) Allows(q Request) Decision {
	best := no
	var unmet, open, denies []string
	for _, p := range r.Policies {
		for _, s := range p.statements {
			switch a, why := s.applies(q); {
			case s.deny && a == yes:
				return Decision{Denied, p.Name}
			case s.deny && a == unknown:
				denies = append(denies, "a Deny with "+why+" in "+p.Name)
			case s.deny:
			case a == unknown:
				open, best = append(open, why+" in "+p.Name), max(best, a)
			case a == yes:
				best = a
			case why != "":
				unmet = append(unmet, why+" in "+p.Name)
			}
		}
	}
	switch {
	case best == yes && denies == nil:
		return Decision{Outcome: Granted}
	case best == yes:
		open = nil
	case best == no && len(r.NotEvaluated) > 0:
		open = slices.Clone(r.NotEvaluated)
	case best == no:
		return Decision{Missing, strings.Join(unmet, ", ")}
	}
	return Decision{AsFar, strings.Join(append(open, denies...), ", ")}
}

// What an event source mapping does on its queue, and on the stream of its table.
var (
	pollQueue  = []word{"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"}
	pollStream = []word{"dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator",
		"dynamodb:ListStreams"}
)

// Polls are the permissions that an event source mapping needs on a queue or on the stream of a table, by their names.
// One name is empty.
func Polls(queue, table string) (all []Request) {
	actions, resource := pollQueue, ARN("sqs", queue)
	if table != "" {
		actions, resource = pollStream, ARN("dynamodb", "table/"+table+"/stream/local")
	}
	for _, action := range actions {
		all = append(all, Request{Action: string(action), Resource: resource})
	}
	return all
}

// managed are policies of AWS, with what they allow on every resource of the services that are here.
var managed = map[string][]word{
	"AWSLambdaBasicExecutionRole": nil, "AWSLambdaVPCAccessExecutionRole": nil, "AWSXRayDaemonWriteAccess": nil,
	"AWSLambdaSQSQueueExecutionRole": pollQueue, "AWSLambdaDynamoDBExecutionRole": pollStream,
	"AWSLambdaInvocation-DynamoDB": append([]word{"lambda:InvokeFunction"}, pollStream...), "AdministratorAccess": {"*"},
	"AWSLambdaRole": {"lambda:InvokeFunction"}, "AWSLambda_FullAccess": {"lambda:*"}, "AWSLambda_ReadOnlyAccess": nil,
	"AmazonSQSFullAccess": {"sqs:*"}, "AmazonSNSFullAccess": {"sns:*"},
	"AmazonDynamoDBFullAccess": {"dynamodb:*", "sns:CreateTopic", "sns:DeleteTopic", "sns:ListSubscriptions*",
		"sns:ListTopics", "sns:Subscribe", "sns:Unsubscribe", "sns:SetTopicAttributes"},
	"AmazonDynamoDBFullAccess_v2": {"dynamodb:*", "sns:ListTopics"},
	"AmazonDynamoDBReadOnlyAccess": {"dynamodb:BatchGetItem", "dynamodb:Describe*", "dynamodb:List*", "dynamodb:GetItem",
		"dynamodb:GetResourcePolicy", "dynamodb:Query", "dynamodb:Scan", "dynamodb:PartiQLSelect", "sns:ListTopics",
		"sns:ListSubscriptionsByTopic"},
	"AmazonSQSReadOnlyAccess": {"sqs:GetQueueAttributes", "sqs:GetQueueUrl", "sqs:List*"},
	"AmazonSNSReadOnlyAccess": {"sns:GetTopicAttributes", "sns:List*"},
}

// Managed is a policy that AWS manages, by its ARN, if it is known.
func Managed(arn string) (Policy, bool) {
	name := arn[strings.LastIndex(arn, "/")+1:]
	actions, known := managed[name]
	return Policy{name, []statement{{actions: compile(actions, false, "i", true),
		resources: compile([]word{"*"}, false, "", true)}}}, known && strings.Contains(arn, ":iam::aws:policy/")
}

package templatetests

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// rights are the actions by role and resource. A resource of another stack has the
// name that it has there.
type rights map[string]map[string][]string

// pushLogs is for the role with which API Gateway writes the access logs of an
// account's REST APIs. It takes no other policy.
// https://docs.aws.amazon.com/apigateway/latest/developerguide/set-up-logging.html
const pushLogs = "arn:AWS::Partition:iam::aws:policy/service-role/AmazonAPIGatewayPushToCloudWatchLogs"

func (s stacks) rights(errs *findings) rights {
	all := rights{}
	for _, tt := range []template{s.payments, s.orders} {
		for id, r := range tt.resources("AWS::IAM::Role") {
			if managed := texts(at(r, "Properties", "ManagedPolicyArns")); name(id) == "APIRESTCloudWatchRole" &&
				len(managed) == 1 && managed[0] == pushLogs {
				continue
			}
			all[name(id)] = map[string][]string{}
			if at(r, "Properties", "ManagedPolicyArns") != nil || at(r, "Properties", "Policies") != nil {
				errs.add("%s has policies beside the one that is looked at", id)
			}
		}
		for id, policy := range tt.resources("AWS::IAM::Policy") {
			statements, _ := at(policy, "Properties", "PolicyDocument", "Statement").([]any)
			for _, raw := range statements {
				m, _ := raw.(map[string]any)
				if m["Effect"] != "Allow" || m["NotAction"] != nil || m["NotResource"] != nil {
					errs.add("%s has a statement that allows nothing by name: %v", id, text(m))
				}
				for _, role := range texts(at(policy, "Properties", "Roles")) {
					if all[role] == nil {
						errs.add("%s is for %s, which is no role of ours", id, role)
						continue
					}
					for _, resource := range s.named(m["Resource"]) {
						all[role][resource] = append(all[role][resource], texts(m["Action"])...)
						slices.Sort(all[role][resource])
					}
				}
			}
		}
	}
	return all
}

// named are the texts of a value, with imports as what is exported.
func (s stacks) named(v any) []string {
	b, _ := json.Marshal(v)
	whole := string(b)
	outputs, _ := s.payments["Outputs"].(map[string]any)
	for _, o := range outputs {
		if export, ok := at(o, "Export", "Name").(string); ok {
			value, _ := json.Marshal(at(o, "Value"))
			whole = strings.ReplaceAll(whole, `{"Fn::ImportValue":"`+export+`"}`, string(value))
		}
	}
	var resolved any
	if json.Unmarshal([]byte(whole), &resolved) != nil {
		return []string{whole}
	}
	return texts(resolved)
}

var wantedRights = rights{
	"PaymentsRole": {
		"PaymentsLogs.Arn": {"logs:CreateLogStream", "logs:PutLogEvents"},
		"Records.Arn":      {"dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"},
	},
	"StatementsRole": {
		"StatementsLogs.Arn":  {"logs:CreateLogStream", "logs:PutLogEvents"},
		"Records.Arn":         {"dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"},
		"StatementsQueue.Arn": {"sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"},
	},
	"StatementsRelayFunctionRole": {
		"StatementsRelayFunctionLogs.Arn": {"logs:CreateLogStream", "logs:PutLogEvents"},
		"Records.Arn":                     {"dynamodb:BatchGetItem", "dynamodb:UpdateItem"},
		"Records.Arn/index/open":          {"dynamodb:Query"},
		"Records.StreamArn": {"dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator",
			"dynamodb:ListStreams"},
		"StatementsQueue.Arn":         {"sqs:SendMessage"},
		"StatementsRelayFailures.Arn": {"sqs:SendMessage"},
	},
	"WorkerRole": {
		"WorkerLogs.Arn":  {"logs:CreateLogStream", "logs:PutLogEvents"},
		"Records.Arn":     {"dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"},
		"Orders.Arn":      {"dynamodb:PutItem"},
		"OrdersQueue.Arn": {"sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"},
	},
	"RelayFunctionRole": {
		"RelayFunctionLogs.Arn":  {"logs:CreateLogStream", "logs:PutLogEvents"},
		"Records.Arn":            {"dynamodb:BatchGetItem", "dynamodb:UpdateItem"},
		"Records.Arn/index/open": {"dynamodb:Query"},
		"Records.StreamArn": {"dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator",
			"dynamodb:ListStreams"},
		"OrderEvents":       {"sns:Publish"},
		"RelayFailures.Arn": {"sqs:SendMessage"},
	},
	"RefundSweeperFunctionRole": {
		"RefundSweeperFunctionLogs.Arn": {"logs:CreateLogStream", "logs:PutLogEvents"},
		"Records.Arn": {"dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:PutItem",
			"dynamodb:UpdateItem"},
		"Records.Arn/index/open":       {"dynamodb:Query"},
		"RefundSweeperEscalations.Arn": {"sqs:SendMessage"},
	},
	"SweeperFunctionRole": {
		"SweeperFunctionLogs.Arn": {"logs:CreateLogStream", "logs:PutLogEvents"},
		"Records.Arn":             {"dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"},
		"Records.Arn/index/open":  {"dynamodb:Query"},
		"SweeperEscalations.Arn":  {"sqs:SendMessage"},
	},
}

func permissionsAreExact(s stacks, errs *findings) {
	got := s.rights(errs)
	for _, role := range slices.Sorted(maps.Keys(got)) {
		for _, resource := range slices.Sorted(maps.Keys(got[role])) {
			errs.want(role+"'s permissions on "+resource, wantedRights[role][resource], got[role][resource])
		}
	}
	for role, resources := range wantedRights {
		for resource := range resources {
			if got[role][resource] == nil {
				errs.add("%s has no permissions on %s", role, resource)
			}
		}
	}
}

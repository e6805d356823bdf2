// Package iam decides whether the policies of a function's role allow what the function asks DynamoDB, SQS and SNS for,
// and the functions that it invokes.
//
//	requests, err := iam.Requests(r.Header, body, partitionKey)
//	...
//	for _, q := range requests {
//		d := role.Allows(q)
//		report.Add("Shop/Charge", role, q, d)
//		if !d.Granted() {
//			iam.Refuse(w, "Shop-Charge", role, q, d)
//			return
//		}
//	}
//
// # What is as in IAM
//
//   - A call needs the actions and resources of the Service Authorization Reference. A transaction needs those of its
//     items, a batch of DynamoDB its own on each table, a batch of SQS or SNS those of its single operation.
//   - A Deny that applies overrides every Allow, and what no statement allows is refused.
//   - Action, NotAction, Resource and NotResource have the wildcards * and ?. Actions have no case.
//   - Conditions: StringEquals, StringLike, StringEqualsIgnoreCase, ArnEquals, ArnLike and Bool, with Not, IfExists,
//     ForAllValues and ForAnyValue; Null.
//
// # What is not evaluated
//
// The following counts as a grant in an Allow and as nothing in a Deny, and is reported: other operators; conditions
// on other keys than dynamodb:LeadingKeys, dynamodb:EnclosingOperation and those that are the same for every request
// here; policy variables; policies that AWS manages, other than those that [Managed] knows; resources that a request
// does not name, such as the task of CancelMessageMoveTask. The leading key is not known in a query with KeyConditions,
// or of an index with another partition key than its table.
//
// Policies of queues, topics, tables and functions are not read: within an account those of the role are enough,
// unless such a policy denies. PartiQL, permissions boundaries, service control policies, session policies and KMS are
// missing. A stream has one name, table/NAME/stream/local, whatever the server calls it.
//
// Source: Service Authorization Reference, "Actions, resources, and condition keys" for Amazon DynamoDB, Amazon SQS,
// Amazon SNS and AWS Lambda; IAM user guide, "Policy evaluation logic" and "IAM JSON policy element reference".
package iam

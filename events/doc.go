// Package samples holds one event of every kind that a Lambda function of this
// project may be invoked with, as the services send it: names, nesting, nulls,
// header case and number types are those of the service, the values are made up.
//
// Most samples carry the same payment as JSON, so that one operation can be fed by
// them; queues and streams carry others too, a table's stream has items in its
// place, and s3 and eventbridge-scheduled carry none. The HTTP samples are
// POST /payments with an Idempotency-Key header (lower-cased by all but payload 1.0).
//
// # API Gateway HTTP API, payload 2.0
//
//	apigw-v2-none              no authorizer
//	apigw-v2-jwt               JWT authorizer: claims (all strings) and scopes
//	apigw-v2-iam               IAM authorizer, caller from another account
//	apigw-v2-lambda-simple     Lambda authorizer, simple response: context keeps its types
//	apigw-v2-lambda-policy     Lambda authorizer, IAM policy: context of strings
//	apigw-v2-base64            body of a media type that the service does not know as text
//	apigw-v2-cookies           cookies apart from the headers
//	apigw-v2-repeated-headers  repeated headers and query parameters, joined with commas
//
// # API Gateway REST API, payload 1.0
//
//	apigw-v1-none              no authorizer
//	apigw-v1-cognito           Cognito user pool authorizer
//	apigw-v1-api-key           usage plan: the key and its id in the identity
//	apigw-v1-iam               IAM authorization: a role's session from another account
//	apigw-v1-lambda            Lambda authorizer: principalId and context
//	apigw-v1-base64            API with binary media types
//	apigw-v1-repeated-headers  single maps hold the last value, multi-value maps all
//	apigw-v1-custom-domain     greedy proxy behind a domain's base path, which the path holds
//
// # Function URL
//
//	furl-none                  AuthType NONE: the account is "anonymous"
//	furl-iam                   AuthType AWS_IAM
//	furl-base64                binary body
//	furl-repeated-headers      repeats joined with commas, cookies apart
//
// # Application Load Balancer
//
//	alb-single                 single-value headers and query parameters
//	alb-multi                  target group with multi-value headers
//	alb-base64                 binary body
//
// # Queues, topics, buses, streams
//
//	sqs-standard               three messages: with attributes, received three times, bare
//	sqs-fifo                   three messages in two groups, without attributes: take the
//	                           key from the deduplication id or the body
//	sns                        one notification with attributes
//	eventbridge-custom         an application's own event
//	eventbridge-scheduled      a scheduled rule
//	s3                         an object created, its key URL-encoded
//	kinesis                    two records of one shard
//	dynamodb-stream            insert, modify, and a removal by TTL
//	kafka-msk                  two partitions, record headers as signed bytes
//
// # Direct
//
//	async-direct               the caller's own JSON (Invoke, InvocationType Event)
//	stepfunctions-task         a task's Parameters with execution, state and task token
//
// Sources: the event references in the AWS Lambda, API Gateway and Elastic
// Load Balancing developer guides, and the types of
// github.com/aws/aws-lambda-go/events.
package samples

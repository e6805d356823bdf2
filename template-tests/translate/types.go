package translate

// kind of a resource in Terraform. The paths of properties and attributes have a dot before each member,
// and the number of each element; * stands for every number. What is not named here has the template's name in
// snake case. An attribute is one of
//
//	path        the attribute with the same value
//	json path   … with the value as JSON
//	one path    … with the only element of a list
//	pairs path  … with an object for a list of names and values
//	-           none
type kind struct {
	name       string
	called     string            // the attribute with the name; empty: it has none
	retained   string            // the attribute that is true where a resource outlives its stack
	attributes map[string]string // by the path of the property
	further    map[string]string // expressions of attributes without a property
	references map[string]string // attributes, by that of the template, "" for Ref; what follows a colon is appended
}

var kinds = map[string]kind{
	"AWS::CloudWatch::Alarm": {
		name: "aws_cloudwatch_metric_alarm", called: "alarm_name",
		attributes: map[string]string{
			"Dimensions":                             "pairs dimensions",
			"Metrics.*.Expression":                   "metric_query.*.expression",
			"Metrics.*.Id":                           "metric_query.*.id",
			"Metrics.*.Label":                        "metric_query.*.label",
			"Metrics.*.ReturnData":                   "metric_query.*.return_data",
			"Metrics.*.MetricStat.Metric.Dimensions": "pairs metric_query.*.metric.dimensions",
			"Metrics.*.MetricStat.Metric.MetricName": "metric_query.*.metric.metric_name",
			"Metrics.*.MetricStat.Metric.Namespace":  "metric_query.*.metric.namespace",
			"Metrics.*.MetricStat.Period":            "metric_query.*.metric.period",
			"Metrics.*.MetricStat.Stat":              "metric_query.*.metric.stat",
		},
	},
	// A table of one region.
	"AWS::DynamoDB::GlobalTable": {
		name: "aws_dynamodb_table", called: "name", retained: "lifecycle.prevent_destroy",
		attributes: map[string]string{
			"AttributeDefinitions.*.AttributeName":                      "attribute.*.name",
			"AttributeDefinitions.*.AttributeType":                      "attribute.*.type",
			"KeySchema.0.AttributeName":                                 "hash_key",
			"KeySchema.0.KeyType":                                       "-",
			"KeySchema.1.AttributeName":                                 "range_key",
			"KeySchema.1.KeyType":                                       "-",
			"GlobalSecondaryIndexes.*.IndexName":                        "global_secondary_index.*.name",
			"GlobalSecondaryIndexes.*.KeySchema.0.AttributeName":        "global_secondary_index.*.hash_key",
			"GlobalSecondaryIndexes.*.KeySchema.0.KeyType":              "-",
			"GlobalSecondaryIndexes.*.KeySchema.1.AttributeName":        "global_secondary_index.*.range_key",
			"GlobalSecondaryIndexes.*.KeySchema.1.KeyType":              "-",
			"GlobalSecondaryIndexes.*.Projection.ProjectionType":        "global_secondary_index.*.projection_type",
			"Replicas.0.DeletionProtectionEnabled":                      "deletion_protection_enabled",
			"Replicas.0.GlobalSecondaryIndexes.*.IndexName":             "-",
			"Replicas.0.PointInTimeRecoverySpecification." + recoveryOn: "point_in_time_recovery.enabled",
			"Replicas.0.Region":                                         "-",
			"SSESpecification.SSEEnabled":                               "server_side_encryption.enabled",
			"StreamSpecification.StreamViewType":                        "stream_view_type",
			"TimeToLiveSpecification.AttributeName":                     "ttl.attribute_name",
			"TimeToLiveSpecification.Enabled":                           "ttl.enabled",
		},
		further:    map[string]string{"stream_enabled": "true"},
		references: map[string]string{"": "name"},
	},
	"AWS::Events::Rule": {
		name: "aws_cloudwatch_event_rule", called: "name",
		references: map[string]string{"": "name"},
	},
	target: {
		name:       "aws_cloudwatch_event_target",
		attributes: map[string]string{"Id": "target_id"},
	},
	"AWS::IAM::ManagedPolicy": {
		name: "aws_iam_policy", called: "name",
		attributes: map[string]string{"PolicyDocument": "json policy"},
		references: map[string]string{"": "arn"},
	},
	"AWS::IAM::Policy": {
		name: "aws_iam_role_policy", called: "name",
		attributes: map[string]string{"PolicyDocument": "json policy", "PolicyName": "-", "Roles": "one role"},
	},
	"AWS::IAM::Role": {
		name: "aws_iam_role", called: "name",
		attributes: map[string]string{"AssumeRolePolicyDocument": "json assume_role_policy"},
		references: map[string]string{"": "name"},
	},
	"AWS::Lambda::EventInvokeConfig": {name: "aws_lambda_function_event_invoke_config"},
	"AWS::Lambda::EventSourceMapping": {
		name: "aws_lambda_event_source_mapping",
		attributes: map[string]string{
			"DestinationConfig.OnFailure.Destination": "destination_config.on_failure.destination_arn",
			"FilterCriteria.Filters.*.Pattern":        "filter_criteria.filter.*.pattern",
		},
	},
	lambda: {
		name: "aws_lambda_function", called: "function_name",
		attributes: map[string]string{
			"Code.S3Bucket": "-", "Code.S3Key": "-", "Environment.Variables": "environment.variables",
		},
		references: map[string]string{"": "function_name"},
	},
	"AWS::Lambda::Permission": {name: "aws_lambda_permission"},
	"AWS::Logs::LogGroup": {
		name: "aws_cloudwatch_log_group", called: "name", retained: "skip_destroy",
		// CloudFormation's ARN of a log group ends in :*, and Terraform's does not.
		references: map[string]string{"": "name", "Arn": "arn:*"},
	},
	"AWS::SQS::Queue": {
		name: "aws_sqs_queue", called: "name", retained: "lifecycle.prevent_destroy",
		attributes: map[string]string{
			"MessageRetentionPeriod": "message_retention_seconds", "RedrivePolicy": "json redrive_policy",
			"VisibilityTimeout": "visibility_timeout_seconds",
		},
		references: map[string]string{"": "url", "QueueName": "name"},
	},
	"AWS::SQS::QueuePolicy": {
		name:       "aws_sqs_queue_policy",
		attributes: map[string]string{"PolicyDocument": "json policy", "Queues": "one queue_url"},
	},
}

const (
	recoveryOn = "PointInTimeRecoveryEnabled"

	// target is a target of a rule, which is a resource of its own in Terraform.
	target = "AWS::Events::Rule.Target"
)

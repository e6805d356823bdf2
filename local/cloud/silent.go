package cloud

// What has no behaviour here, with the services of its ARNs.
func init() {
	for name, service := range map[string]string{
		"AWS::CloudWatch::Alarm": "cloudwatch", "AWS::CloudWatch::CompositeAlarm": "cloudwatch",
		"AWS::CloudWatch::Dashboard": "cloudwatch", "AWS::CloudWatch::AnomalyDetector": "cloudwatch",
		"AWS::Logs::LogGroup": "logs", "AWS::Logs::MetricFilter": "logs", "AWS::Logs::QueryDefinition": "logs",
		"AWS::Logs::ResourcePolicy": "logs", "AWS::Logs::SubscriptionFilter": "logs",
		"AWS::IAM::Policy": "iam", "AWS::IAM::ManagedPolicy": "iam", "AWS::IAM::Role": "iam", "AWS::IAM::User": "iam",
		"AWS::IAM::Group": "iam", "AWS::IAM::RolePolicy": "iam",
		"AWS::KMS::Key": "kms", "AWS::KMS::Alias": "kms",
		"AWS::SQS::QueuePolicy": "sqs", "AWS::SNS::TopicPolicy": "sns",
		"AWS::Lambda::Permission": "lambda", "AWS::Lambda::EventInvokeConfig": "lambda",
		"AWS::ApiGateway::Account": "apigateway", "AWS::ApiGateway::GatewayResponse": "apigateway",
		"AWS::ApiGateway::UsagePlan": "apigateway", "AWS::ApiGateway::ApiKey": "apigateway",
		"AWS::ApiGateway::UsagePlanKey": "apigateway", "AWS::ApiGateway::RequestValidator": "apigateway",
		"AWS::ApiGateway::Model":        "apigateway",
		"AWS::Scheduler::ScheduleGroup": "scheduler", "AWS::CDK::Metadata": "cdk",
		"AWS::ApplicationAutoScaling::ScalableTarget": "autoscaling",
		"AWS::ApplicationAutoScaling::ScalingPolicy":  "autoscaling",
		"AWS::Cognito::UserPool":                      "cognito-idp", "AWS::Cognito::UserPoolClient": "cognito-idp",
		"AWS::Cognito::UserPoolDomain":                "cognito-idp",
		"AWS::ServiceCatalogAppRegistry::Application": "servicecatalog",
		"AWS::ResourceGroups::Group":                  "resource-groups", "AWS::XRay::Group": "xray",
	} {
		k := kind{service: service}
		switch name {
		case "AWS::Logs::LogGroup":
			k.name, k.arn = "LogGroupName", func(_ *resource, name string) string { return "log-group:" + name + ":*" }
		case "AWS::IAM::Role":
			k.name, k.arn = "RoleName", func(_ *resource, name string) string { return "role/" + name }
		case "AWS::Cognito::UserPool":
			k.arn = func(_ *resource, name string) string { return "userpool/" + name }
			k.more = func(r *resource, attribute string) string {
				provider := "cognito-idp." + region + ".amazonaws.com/" + r.key()
				return map[string]string{"ProviderName": provider, "ProviderURL": "https://" + provider}[attribute]
			}
		case "AWS::IAM::ManagedPolicy":
			k.name, k.ref, k.arn = "ManagedPolicyName", "Arn", func(_ *resource, name string) string { return "policy/" + name }
		case "AWS::KMS::Key":
			k.arn = func(_ *resource, name string) string { return "key/" + name }
		}
		kinds[name] = k
	}
}

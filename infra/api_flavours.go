package infra

import (
	"encoding/json"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigateway"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2integrations"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"
)

// defaultStage of an HTTP API has no name in the URL.
const defaultStage = "$default"

// logFormat is a line of the access log. own are the fields of this kind of API.
func logFormat(own map[string]string) *string {
	fields := map[string]string{
		"requestId": "$context.requestId", "time": "$context.requestTime", "ip": "$context.identity.sourceIp",
		"method": "$context.httpMethod", "status": "$context.status", "bytes": "$context.responseLength",
		"latency": "$context.responseLatency", "integrationLatency": "$context.integrationLatency",
		"authorizerError": "$context.authorizer.error",
	}
	for name, value := range own {
		fields[name] = value
	}
	text, err := json.Marshal(fields) // in the order of names
	if err != nil {
		panic(err) // strings cannot fail
	}
	return jsii.String(string(text))
}

func (a *API) http(handler awslambda.Function, p *APIProps) {
	a.HTTP = awsapigatewayv2.NewHttpApi(a, jsii.String("HTTP"), &awsapigatewayv2.HttpApiProps{
		ApiName: &p.Name, CreateDefaultStage: jsii.Bool(false), CorsPreflight: p.CORS.http(),
	})
	stage := awsapigatewayv2.NewHttpStage(a, jsii.String("Stage"), &awsapigatewayv2.HttpStageProps{
		HttpApi: a.HTTP, StageName: jsii.String(defaultStage), AutoDeploy: jsii.Bool(true),
		Throttle: &awsapigatewayv2.ThrottleSettings{RateLimit: &p.Rate, BurstLimit: jsii.Number(p.Burst)},
	})
	a.URL = strings.TrimSuffix(*stage.Url(), "/")
	resource := stage.Node().DefaultChild().(awsapigatewayv2.CfnStage)
	resource.SetAccessLogSettings(&awsapigatewayv2.CfnStage_AccessLogSettingsProperty{
		DestinationArn: a.AccessLog.LogGroupArn(),
		Format:         logFormat(map[string]string{"route": "$context.routeKey", "error": "$context.integrationErrorMessage"}),
	})
	integration := awsapigatewayv2integrations.NewHttpLambdaIntegration(jsii.String("Handler"), handler,
		&awsapigatewayv2integrations.HttpLambdaIntegrationProps{
			// No time-out means the longest possible one.
			PayloadFormatVersion: awsapigatewayv2.PayloadFormatVersion_VERSION_2_0(), Timeout: p.shorter(),
		})
	authorizer := p.Authorizer.http()
	p.warnOpen(a)
	settings := map[string]any{}
	for _, r := range a.routes {
		in := &awsapigatewayv2.HttpRouteProps{
			HttpApi: a.HTTP, Integration: integration, Authorizer: authorizer,
			RouteKey: awsapigatewayv2.HttpRouteKey_With(&r.path, awsapigatewayv2.HttpMethod(r.method)),
		}
		if len(r.Scopes) > 0 {
			in.AuthorizationScopes = jsii.Strings(r.Scopes...)
		}
		route := awsapigatewayv2.NewHttpRoute(a, jsii.String(r.Route.Route), in)
		// A stage's settings name routes that exist.
		resource.Node().AddDependency(route)
		if r.Rate != p.Rate || r.Burst != p.Burst {
			settings[r.Route.Route] = map[string]any{"ThrottlingRateLimit": r.Rate, "ThrottlingBurstLimit": r.Burst}
		}
	}
	if len(settings) > 0 {
		resource.SetRouteSettings(settings)
	}
}

// shorter is the time-out of an HTTP API's integration, nil if it is the longest.
func (p *APIProps) shorter() awscdk.Duration {
	if p.Limit == HTTPAPILimit {
		return nil
	}
	return duration(p.Limit)
}

func (a *API) rest(handler awslambda.Function, p *APIProps) {
	perMethod := map[string]*awsapigateway.MethodDeploymentOptions{}
	for _, r := range a.routes {
		if r.Rate != p.Rate || r.Burst != p.Burst {
			perMethod[r.path+"/"+r.method] = &awsapigateway.MethodDeploymentOptions{
				ThrottlingRateLimit: jsii.Number(r.Rate), ThrottlingBurstLimit: jsii.Number(r.Burst),
			}
		}
	}
	a.REST = awsapigateway.NewRestApi(a, jsii.String("REST"), &awsapigateway.RestApiProps{
		RestApiName: &p.Name, CloudWatchRole: jsii.Bool(!p.HasLogRole),
		EndpointTypes: &[]awsapigateway.EndpointType{awsapigateway.EndpointType_REGIONAL},
		DeployOptions: &awsapigateway.StageOptions{
			ThrottlingRateLimit: &p.Rate, ThrottlingBurstLimit: jsii.Number(p.Burst), MethodOptions: &perMethod,
			AccessLogDestination: awsapigateway.NewLogGroupLogDestination(a.AccessLog),
			AccessLogFormat: awsapigateway.AccessLogFormat_Custom(logFormat(map[string]string{
				"route": "$context.resourcePath", "error": "$context.integration.error",
			})),
		},
	})
	a.URL = strings.TrimSuffix(*a.REST.Url(), "/")
	integration := awsapigateway.NewLambdaIntegration(handler, &awsapigateway.LambdaIntegrationOptions{
		Proxy: jsii.Bool(true), AllowTestInvoke: jsii.Bool(false), Timeout: duration(p.Limit),
	})
	p.warnOpen(a)
	options := p.Authorizer.rest(a)
	if p.UsagePlan != nil {
		options.ApiKeyRequired = jsii.Bool(true)
	}
	for _, r := range a.routes {
		in := *options
		if len(r.Scopes) > 0 {
			in.AuthorizationScopes = jsii.Strings(r.Scopes...)
		}
		a.REST.Root().ResourceForPath(&r.path).AddMethod(&r.method, integration, &in)
	}
	p.CORS.rest(a)
	a.plan(p)
	if p.WebACL != "" {
		awscdk.NewCfnResource(a, jsii.String("WAF"), &awscdk.CfnResourceProps{
			Type:       jsii.String("AWS::WAFv2::WebACLAssociation"),
			Properties: &map[string]any{"ResourceArn": a.REST.DeploymentStage().StageArn(), "WebACLArn": p.WebACL},
		})
	}
}

func (a *API) plan(p *APIProps) {
	if p.UsagePlan == nil {
		return
	}
	in := &awsapigateway.UsagePlanProps{
		Name:      &p.Name,
		ApiStages: &[]*awsapigateway.UsagePlanPerApiStage{{Api: a.REST, Stage: a.REST.DeploymentStage()}},
		Throttle:  &awsapigateway.ThrottleSettings{RateLimit: &p.UsagePlan.Rate, BurstLimit: jsii.Number(p.UsagePlan.Burst)},
	}
	if p.UsagePlan.Daily > 0 {
		in.Quota = &awsapigateway.QuotaSettings{Limit: jsii.Number(p.UsagePlan.Daily), Period: awsapigateway.Period_DAY}
	}
	plan := awsapigateway.NewUsagePlan(a, jsii.String("UsagePlan"), in)
	for _, name := range p.UsagePlan.Keys {
		plan.AddApiKey(awsapigateway.NewApiKey(a, jsii.String("Key-"+name), &awsapigateway.ApiKeyProps{ApiKeyName: jsii.String(name)}), nil)
	}
	if len(p.UsagePlan.Keys) == 0 {
		warn(a, "no-api-keys", "the usage plan has no Keys: nobody can call the API until keys are added to the plan; name them in UsagePlan.Keys")
	}
}

func (p *APIProps) warnOpen(a *API) {
	if p.Authorizer.None {
		warn(a, "open-api", "Authorizer is None: everybody may call, and without a tenant all callers share one space of keys; set JWT, IAM or Lambda")
	}
}

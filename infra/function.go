package infra

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/idem/schema"
)

// Defaults and limits of a function.
const (
	// DefaultTimeout gives a handler 9 s before its guard.
	DefaultTimeout = 10 * time.Second
	// maxTimeout is Lambda's limit.
	maxTimeout = 15 * time.Minute
	// DefaultMemory, in MB, gives a Go function about a sixth of a core.
	DefaultMemory = 256

	minMemory, maxMemory = 128, 10240

	// memoryLimit is the Go runtime's soft limit. Lambda kills a process at its Memory and sets no limit,
	// so the collector would let garbage grow past it.
	// https://pkg.go.dev/runtime#hdr-Environment_Variables
	memoryLimit = "GOMEMLIMIT"
	// heapPercent of Memory leaves the rest to what the runtime does not count.
	heapPercent = 85
)

// FunctionProps of a function. Package or Code is required.
type FunctionProps struct {
	// Package is the main package to build, as the go command takes it: an import
	// path, or a path such as ./cmd/worker.
	Package string
	// Dir is where the go command runs: a folder of the module. Empty means the
	// working directory, which under the CDK command line is that of cdk.json.
	Dir string
	// Code is a function that is already built: a folder or an archive with an arm64
	// binary called bootstrap.
	Code awslambda.Code

	// Name of the function. Empty lets CloudFormation choose one.
	Name string
	// Description for the console.
	Description string

	// Timeout after which an invocation is killed, in whole seconds, from 1 s to 15
	// minutes. Zero means [DefaultTimeout]. A claim's lease lasts as long.
	Timeout time.Duration
	// Memory in MB, 128 to 10,240; CPU grows with it. Zero means [DefaultMemory].
	Memory int

	// ReservedConcurrency is how many invocations at once are kept for the function, and the most that it
	// gets. The account's other functions share the rest: so a busy function cannot throttle a relay or a
	// sweeper that has some of its own. A queue's consumer needs as much as the queue's MaxConcurrency. Zero
	// means that it shares, too.
	ReservedConcurrency int

	// LogRetention of the function's log group. Empty means a month.
	LogRetention awslogs.RetentionDays
	// Tracing turns X-Ray on. X-Ray's permissions have no resources, so they are the only
	// permissions of a function that are for "*".
	Tracing bool

	// Environment of the function, as in CDK's, in addition to the variables that its constructs set.
	// GOMEMLIMIT is 85% of Memory unless it is set here.
	Environment *map[string]*string
}

// Function is a Go function for provided.al2023 on arm64, with logs as JSON in a log group
// of its own, and a role that may only write these logs until it is granted more. It is a
// Lambda function of CDK's.
type Function struct {
	awslambda.Function
	// Logs is the function's log group.
	Logs awslogs.LogGroup

	failures awssqs.IQueue // of events; nil if it is not invoked asynchronously
	reserved int           // concurrency
}

// Names in the function's metadata of the main package that it is built from, and of Dir. What runs a template on a
// machine that is not Lambda's builds it again.
const packageMetadata, dirMetadata = "idem:package", "idem:dir"

// NewFunction returns a function. A package is built at synth time by the go
// command on PATH, without Docker: the same source and toolchain give the same
// bytes on every machine. If that fails, NewFunction panics with what the go command
// says, as CDK's own bundling does: without its code no function is synthesized. The build is
// left out for stacks that a command does not need.
func NewFunction(scope constructs.Construct, id string, props *FunctionProps) *Function {
	p := valueOf(props)
	found := p.setDefaults()
	code, folder := p.code(scope, id, &found)
	f := &Function{reserved: p.ReservedConcurrency}
	f.Logs = awslogs.NewLogGroup(scope, jsii.String(id+"Logs"), &awslogs.LogGroupProps{Retention: p.LogRetention})
	role := awsiam.NewRole(scope, jsii.String(id+"Role"), &awsiam.RoleProps{
		AssumedBy: awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil),
	})
	environment := map[string]*string{
		schema.EnvFunctionTimeout: jsii.String(seconds(p.Timeout)),
		memoryLimit:               jsii.String(fmt.Sprintf("%dMiB", p.Memory*heapPercent/100)),
	}
	maps.Copy(environment, *p.Environment)
	in := &awslambda.FunctionProps{
		Runtime:               awslambda.Runtime_PROVIDED_AL2023(),
		Architecture:          awslambda.Architecture_ARM_64(),
		Handler:               jsii.String(bootstrap),
		Code:                  code,
		Role:                  role,
		Timeout:               duration(p.Timeout),
		MemorySize:            jsii.Number(p.Memory),
		Environment:           &environment,
		LogGroup:              f.Logs,
		LoggingFormat:         awslambda.LoggingFormat_JSON,
		Tracing:               awslambda.Tracing_DISABLED,
		FunctionName:          optional(p.Name),
		Description:           optional(p.Description),
		ApplicationLogLevelV2: awslambda.ApplicationLogLevel_INFO,
		SystemLogLevelV2:      awslambda.SystemLogLevel_WARN,
	}
	in.ReservedConcurrentExecutions = positive(p.ReservedConcurrency)
	if p.Tracing {
		in.Tracing = awslambda.Tracing_ACTIVE
	}
	awslambda.NewFunction_Override(f, scope, &id, in)
	for name, value := range map[string]string{packageMetadata: p.Package, dirMetadata: p.Dir} {
		if value != "" {
			f.Node().DefaultChild().(awslambda.CfnFunction).AddMetadata(&name, value)
		}
	}
	if folder != "" && staged(scope) {
		os.RemoveAll(folder)
	}
	f.Logs.GrantWrite(role)
	found.refuse(f)
	return f
}

// UseTable names the table in the function's environment, which also says whether it is
// without transactions ([schema.EnvWithoutTransactions]), and lets the function
// handle records in it, as [Table.GrantHandler] does. o may be nil.
func (f *Function) UseTable(t *Table, o *GrantOptions) {
	t.name(f)
	t.GrantHandler(f, o)
}

// setDefaults sets the defaults, and puts usable values where there are none, so that
// CDK does not throw before the problems come out.
func (p *FunctionProps) setDefaults() (found problems) {
	found.inSeconds("Timeout", &p.Timeout, time.Second, maxTimeout, DefaultTimeout)
	found.inRange("Memory", &p.Memory, minMemory, maxMemory, DefaultMemory)
	if p.ReservedConcurrency < 0 {
		found.add("ReservedConcurrency is %d: use the invocations at once, or zero to reserve none", p.ReservedConcurrency)
	}
	p.LogRetention = cmp.Or(p.LogRetention, awslogs.RetentionDays_ONE_MONTH)
	p.Environment = cmp.Or(p.Environment, &map[string]*string{})
	for _, name := range []string{schema.EnvFunctionTimeout, schema.EnvEndpoint} {
		if _, ok := (*p.Environment)[name]; ok {
			found.add("Environment sets %s: leave it out, %s", name, map[string]string{
				schema.EnvFunctionTimeout: "it follows from Timeout",
				schema.EnvEndpoint:        "it is for a local DynamoDB and would lead the function away from its table",
			}[name])
		}
	}
	return found
}

// code returns the function's code, and its folder if it was built here. It panics if there is none,
// and never returns code that stands in for it where an asset is needed.
func (p *FunctionProps) code(scope constructs.Construct, id string, found *problems) (code awslambda.Code,
	folder string) {
	if p.Code != nil {
		if p.Package != "" {
			found.add("the props have both Package and Code: give one of them")
		}
		return p.Code, ""
	}
	folder, err := os.MkdirTemp("", "idem-function-")
	if err != nil {
		panic(fmt.Errorf("infra: no folder to build in: %w", err))
	}
	switch {
	case p.Package == "":
		err = errors.New("there is no code: name a main package in Package, or give Code")
	case *awscdk.Stack_Of(scope).BundlingRequired():
		if err = build(p.Dir, p.Package, folder); err != nil {
			err = fmt.Errorf("go build of %s failed, correct it, or Package, or Dir: %w", p.Package, err)
		}
	default:
		const script = "#!/bin/sh\necho this function was not built >&2\nexit 1\n"
		err = os.WriteFile(filepath.Join(folder, bootstrap), []byte(script), 0o755)
	}
	if err != nil {
		os.RemoveAll(folder)
		panic(fmt.Errorf("infra: %s/%s: %w", *scope.Node().Path(), id, err))
	}
	return awslambda.Code_FromAsset(&folder, nil), folder
}

// staged reports whether CDK has copied the assets into its output, which it does when a
// function is made unless its context disables that.
func staged(scope constructs.Construct) bool {
	disabled := scope.Node().TryGetContext(jsii.String("aws:cdk:disable-asset-staging"))
	return disabled == nil || disabled == false
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

func duration(d time.Duration) awscdk.Duration {
	return awscdk.Duration_Seconds(jsii.Number(d / time.Second))
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Seal names the function the KMS key by which it encrypts results with package kmsseal (IDEM_KMS_KEY),
// and grants what that needs: see [GrantEncrypt].
func (f *Function) Seal(key awskms.IKey, context map[string]string) {
	f.AddEnvironment(jsii.String(schema.EnvKMSKey), key.KeyArn(), nil)
	GrantEncrypt(key, f, context)
}

// schedule invokes the function every so many minutes. Lambda does not repeat an invocation that fails,
// and drops one that waits as long: the next one does what it has left. The target is the id of the
// rule's only target.
func schedule(scope constructs.Construct, id, target, description string, f *Function, every time.Duration) {
	f.ConfigureAsyncInvoke(&awslambda.EventInvokeConfigOptions{
		RetryAttempts: jsii.Number(0), MaxEventAge: duration(every),
	})
	rate := fmt.Sprintf("rate(%d minutes)", every/time.Minute)
	if every == time.Minute {
		rate = "rate(1 minute)"
	}
	invoked(scope, id, target, description, f, rate)
}

// invoked has a rule invoke the function at the times of the expression.
func invoked(scope constructs.Construct, id, target, description string, f *Function, at string) {
	rule := awsevents.NewCfnRule(scope, &id, &awsevents.CfnRuleProps{
		Description: &description, ScheduleExpression: &at,
		Targets: &[]any{&awsevents.CfnRule_TargetProperty{Id: &target, Arn: f.FunctionArn()}},
	})
	f.AddPermission(&id, &awslambda.Permission{
		Principal: awsiam.NewServicePrincipal(jsii.String("events.amazonaws.com"), nil), SourceArn: rule.AttrArn(),
	})
}

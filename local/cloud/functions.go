package cloud

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Function is a function of Lambda.
type Function struct {
	Name string
	// Package is the main package that it is built from, in the folder Dir, as the construct names it, and Asset the
	// folder or the archive with its binary. One of them is there.
	Package, Dir, Asset string
	Env                 map[string]string
	Timeout             time.Duration
	MaxInstances        int    // 0 if it is not limited
	Role                string // the name of its role
	of                  *resource
}

// Mapping brings a queue's messages, or the records of a table's stream, to a function.
type Mapping struct {
	Function, Queue, Table string
	BatchSize              int
	MaxConcurrency         int // of a queue's; 0 if it is not limited
	Filter                 string
	of                     *resource
}

// Names in a function's metadata of the main package that it is built from, and of the folder where the go command
// runs. Without the latter it is Options.Dir.
const PackageMetadata, DirMetadata = "idem:package", "idem:dir"

func init() {
	register("AWS::Lambda::Function", kind{service: "lambda", name: "FunctionName", plan: planFunction,
		arn: func(_ *resource, name string) string { return "function:" + name },
		ignored: []string{"MemorySize", "Architectures", "Handler", "LoggingConfig", "TracingConfig", "EphemeralStorage",
			"RuntimeManagementConfig", "PackageType", "RecursiveLoop"}})
	version := kind{service: "lambda", plan: func(*Plan, *resource) error { return nil }, ref: "Arn", more: versionOf}
	register("AWS::Lambda::Version", version)
	register("AWS::Lambda::Alias", version)
	register("AWS::Lambda::Url", kind{service: "lambda", plan: planURL, ref: "FunctionArn", more: urlOf})
	register("AWS::Lambda::EventSourceMapping", kind{service: "lambda", plan: planMapping, ignored: []string{
		"StartingPosition", "MaximumRetryAttempts", "BisectBatchOnFunctionError", "DestinationConfig",
		"MaximumRecordAgeInSeconds", "MetricsConfig", "Enabled"}})
}

// functionName is the name of the function that a text means: a name, an ARN, with a version or without.
func functionName(text string) string {
	if _, rest, ok := strings.Cut(text, ":function:"); ok {
		text = rest
	}
	name, _, _ := strings.Cut(text, ":")
	// What an API names is invoked by a path around the ARN.
	name, _, _ = strings.Cut(name, "/invocations")
	return name
}

// versionOf is what a version or an alias has: it is the function itself here.
func versionOf(r *resource, attribute string) string {
	function, err := r.stack.scope.Eval(r.Properties["FunctionName"])
	if err != nil {
		return ""
	}
	switch attribute {
	case "Arn", "AliasArn", "FunctionArn":
		return "arn:aws:lambda:" + region + ":" + account + ":function:" + functionName(text(function)) + ":live"
	case "Version":
		return "1"
	}
	return ""
}

func planFunction(p *Plan, r *resource) error {
	var is struct {
		Code                         struct{ S3Key, ZipFile, ImageUri string }
		Runtime, Role                string
		Timeout                      number
		ReservedConcurrentExecutions *number
		Environment                  struct{ Variables map[string]json.RawMessage }
		Layers                       []string
	}
	name, err := r.name()
	if err == nil {
		err = p.decode(r, &is, "Code", "Runtime", "Role", "Timeout", "ReservedConcurrentExecutions", "Environment", "Layers")
	}
	if err != nil {
		return err
	}
	if len(is.Layers) > 0 {
		return r.fail("layers do not run here")
	}
	f := Function{Name: name, Env: map[string]string{}, Timeout: 3 * time.Second, Role: lastRole(is.Role), of: r}
	if is.Timeout > 0 {
		f.Timeout = time.Duration(is.Timeout) * time.Second
	}
	if n := is.ReservedConcurrentExecutions; n != nil {
		f.MaxInstances = int(*n)
	}
	for key, value := range is.Environment.Variables {
		var v any
		if err := json.Unmarshal(value, &v); err != nil {
			return r.fail("%w", err)
		}
		f.Env[key] = text(v)
	}
	f.Package, _ = r.Metadata[PackageMetadata].(string)
	f.Dir, _ = r.Metadata[DirMetadata].(string)
	f.Asset = r.stack.Assets[is.Code.S3Key]
	if path, ok := r.Metadata["aws:asset:path"].(string); ok && f.Asset == "" {
		f.Asset = filepath.Join(r.stack.Folder, path)
	}
	switch {
	case f.Package != "":
	case !slices.Contains([]string{"provided.al2023", "provided.al2", "provided"}, is.Runtime):
		return r.fail("functions of the runtime %q do not run here: only binaries, of the runtime provided.al2023",
			is.Runtime)
	case f.Asset == "":
		return r.fail("its code is not part of the assembly: give the assembly that cdk synth writes")
	}
	p.Functions = append(p.Functions, f)
	return nil
}

// lastRole is the name of a role by its ARN.
func lastRole(arn string) string { return arn[strings.LastIndex(arn, "/")+1:] }

func planMapping(p *Plan, r *resource) error {
	var is struct {
		FunctionName, EventSourceArn   string
		BatchSize                      number
		MaximumBatchingWindowInSeconds number
		FunctionResponseTypes          []string
		ScalingConfig                  struct{ MaximumConcurrency number }
		FilterCriteria                 struct{ Filters []struct{ Pattern string } }
		ParallelizationFactor          number
	}
	err := p.decode(r, &is, "FunctionName", "EventSourceArn", "BatchSize", "MaximumBatchingWindowInSeconds",
		"FunctionResponseTypes", "ScalingConfig", "FilterCriteria", "ParallelizationFactor")
	if err != nil {
		return err
	}
	m := Mapping{Function: functionName(is.FunctionName), BatchSize: int(is.BatchSize),
		MaxConcurrency: int(is.ScalingConfig.MaximumConcurrency), of: r}
	switch {
	case strings.HasPrefix(is.EventSourceArn, "arn:aws:sqs:"):
		m.Queue = lastPart(is.EventSourceArn)
		if len(is.FilterCriteria.Filters) > 0 {
			return r.fail("filters of a queue's messages do not run here")
		}
	case strings.HasPrefix(is.EventSourceArn, "arn:aws:dynamodb:"):
		_, rest, _ := strings.Cut(is.EventSourceArn, ":table/")
		m.Table, _, _ = strings.Cut(rest, "/")
		switch filters := is.FilterCriteria.Filters; len(filters) {
		case 0:
		case 1:
			m.Filter = filters[0].Pattern
		default:
			return r.fail("several filters of a stream do not run here")
		}
	default:
		return r.fail("events of %s do not come here: only those of a queue and of a table's stream", is.EventSourceArn)
	}
	if !slices.Contains(is.FunctionResponseTypes, "ReportBatchItemFailures") {
		return r.fail("it does not report the failures of single items (FunctionResponseTypes: ReportBatchItemFailures), " +
			"without which one failure delivers the whole batch again")
	}
	if is.MaximumBatchingWindowInSeconds > 0 {
		p.Notes = append(p.Notes, r.String()+": MaximumBatchingWindowInSeconds has no effect here")
	}
	p.Mappings = append(p.Mappings, m)
	return nil
}

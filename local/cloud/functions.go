package cloud

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idempotency/local/aws/iam"
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
	debugged            bool
}

// Names in a function's metadata of the main package that it is built from, and of the folder where the go command
// runs. Without the latter it is Options.Dir.
const PackageMetadata, DirMetadata = "idem:package", "idem:dir"

func init() {
	kinds["AWS::Lambda::Function"] = kind{service: "lambda", name: "FunctionName", plan: planned(planFunction),
		arn: func(_ *resource, name string) string { return "function:" + name },
		ignored: []string{"MemorySize", "Architectures", "Handler", "TracingConfig", "EphemeralStorage",
			"RuntimeManagementConfig", "PackageType", "RecursiveLoop"}}
	version := kind{service: "lambda", plan: func(*Plan, *resource) error { return nil }, ref: "Arn", more: versionOf}
	kinds["AWS::Lambda::Version"] = version
	kinds["AWS::Lambda::Alias"] = version
	kinds["AWS::Lambda::Url"] = kind{service: "lambda", plan: planned(planURL), ref: "FunctionArn", more: urlOf,
		ignored: []string{"Cors", "InvokeMode", "Qualifier"}}
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

// versionOf is what a version or an alias has: it is the function itself here. Each version is the first one.
func versionOf(r *resource, attribute string) string {
	is, err := r.stack.scope.Properties(r.id)
	if err != nil {
		return ""
	}
	version := "1"
	if is["Name"] != nil { // of an alias
		version = text(is["Name"])
	}
	switch attribute {
	case "Arn", "AliasArn", "FunctionArn":
		return iam.ARN("lambda", "function:"+functionName(text(is["FunctionName"]))+":"+version)
	case "Version":
		return "1"
	}
	return ""
}

func planFunction(p *Plan, r *resource, is struct {
	Code                         struct{ S3Key, ZipFile, ImageUri string }
	Runtime, Role                string
	Timeout                      number
	ReservedConcurrentExecutions *number
	Environment                  struct{ Variables map[string]any }
	Layers                       []string
	LoggingConfig                struct{ LogFormat, ApplicationLogLevel string }
}) error {
	if len(is.Layers) > 0 {
		return r.fail("layers do not run here")
	}
	f := Function{Name: r.physical, Env: map[string]string{}, Timeout: 3 * time.Second, Role: lastRole(is.Role), of: r}
	if is.Timeout > 0 {
		f.Timeout = time.Duration(is.Timeout) * time.Second
	}
	if n := is.ReservedConcurrentExecutions; n != nil {
		if *n < 1 {
			return r.fail("ReservedConcurrentExecutions %d throttles all its invocations on AWS, which does not run here: "+
				"give at least 1, or leave it out", int(*n))
		}
		f.MaxInstances = int(*n)
	}
	// https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs-log-level.html
	if log := is.LoggingConfig; log.LogFormat == "JSON" {
		f.Env["AWS_LAMBDA_LOG_FORMAT"], f.Env["AWS_LAMBDA_LOG_LEVEL"] = "JSON", cmp.Or(log.ApplicationLogLevel, "INFO")
	}
	for key, value := range is.Environment.Variables {
		f.Env[key] = text(value)
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
		return r.fail("its code is not here: give the assembly that cdk synth writes, or name the package that it is built "+
			"from in its metadata (%s)", PackageMetadata)
	}
	p.Functions = append(p.Functions, f)
	return nil
}

// lastRole is the name of a role by its ARN.
func lastRole(arn string) string { return arn[strings.LastIndex(arn, "/")+1:] }

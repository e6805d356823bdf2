package runtime

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idempotency/local/aws/iam"
)

const (
	maxTimeout     = 15 * time.Minute
	maxConcurrency = 1600 // of PerExecutionEnvironmentMaxConcurrency

	memoryMB = "128" // of the function's environment
)

// Function describes what to run.
type Function struct {
	// Path of the compiled main. Required.
	Path string
	// Env adds "NAME=value" entries to the environment that Lambda sets, and overrides it,
	// except for the address of the Runtime API. Only PATH is passed on from this process's
	// own environment.
	Env []string
	// Name is the function's name. Default: the file name of Path.
	Name string
	// Timeout is when an invocation is killed, counted from the moment the
	// process gets it. Default 3 s, at most 15 min.
	Timeout time.Duration
	// MaxInstances is how many processes may take work at once. Default 10.
	MaxInstances int
	// Concurrency is how many invocations one process may work on at once. The function
	// gets it in AWS_LAMBDA_MAX_CONCURRENCY, as on Lambda Managed Instances, and
	// aws-lambda-go then runs as many workers. Default 1, at most 1,600. Above 1 a time-out
	// does not end the process, see the package's documentation.
	Concurrency int
}

// Options of a pool; nil and zero values mean the defaults.
type Options struct {
	// InitTimeout is how long a new process may take until it asks for its
	// first event. Default 10 s.
	InitTimeout time.Duration
	// Freeze stops a process between invocations (SIGSTOP, with all that it has
	// started) and continues it for the next one, as Lambda does: work that a handler left
	// behind does not run in between. Start refuses it with Function.Concurrency above 1,
	// since Lambda does not freeze such a process.
	Freeze bool
	// TempDir gets the folder of each process, which has its HOME and TMPDIR. Default: the system's temporary folder.
	TempDir string
	// Output, if set, gets every line that an instance writes, after the function's name
	// and the pid. Writes are serialised.
	Output io.Writer
}

func (f Function) withDefaults() (Function, error) {
	if f.Path == "" {
		return f, errors.New("runtime: Function.Path is empty; name the compiled main")
	}
	path, err := filepath.Abs(f.Path)
	if err != nil {
		return f, fmt.Errorf("runtime: Function.Path %q: %w", f.Path, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return f, fmt.Errorf("runtime: Function.Path: %w; build it first with go build", err)
	}
	if !info.Mode().IsRegular() {
		return f, fmt.Errorf("runtime: Function.Path %q is not a file", path)
	}
	f.Path = path
	if f.Name = cmp.Or(f.Name, filepath.Base(path)); !functionName.MatchString(f.Name) {
		return f, fmt.Errorf("runtime: Function.Name %q may hold letters, digits, '-' and '_' only", f.Name)
	}
	for _, entry := range f.Env {
		name, _, ok := strings.Cut(entry, "=")
		switch {
		case !ok || name == "":
			return f, fmt.Errorf("runtime: Function.Env entry %q is not NAME=value", entry)
		case name == envRuntimeAPI:
			return f, fmt.Errorf("runtime: Function.Env may not set %s: the pool does", name)
		case name == envMaxConcurrency:
			return f, fmt.Errorf("runtime: Function.Env may not set %s: use Function.Concurrency", name)
		}
	}
	f.Timeout = cmp.Or(f.Timeout, 3*time.Second)
	f.MaxInstances = cmp.Or(f.MaxInstances, 10) // keeps a small machine usable
	f.Concurrency = cmp.Or(f.Concurrency, 1)
	switch {
	case f.Timeout < 0 || f.Timeout > maxTimeout:
		return f, fmt.Errorf("runtime: Function.Timeout %v is not in (0, %v]", f.Timeout, maxTimeout)
	case f.MaxInstances < 0:
		return f, fmt.Errorf("runtime: Function.MaxInstances %d is negative", f.MaxInstances)
	case f.Concurrency < 0 || f.Concurrency > maxConcurrency:
		return f, fmt.Errorf("runtime: Function.Concurrency %d is not in [1, %d]", f.Concurrency, maxConcurrency)
	}
	return f, nil
}

var functionName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

const (
	envRuntimeAPI     = "AWS_LAMBDA_RUNTIME_API"
	envMaxConcurrency = "AWS_LAMBDA_MAX_CONCURRENCY"
)

// environment has the variables that Lambda sets for a function on an OS-only runtime, then
// the function's own. HOME and TMPDIR are in the instance's own folder, and the credentials
// are invented, so that a function does not find those of the person who runs it.
func (p *Pool) environment(runtimeAPI, folder string, started time.Time) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"),
		"LANG=en_US.UTF-8",
		"TZ=:UTC",
		"HOME=" + folder,
		"TMPDIR=" + folder,
		"LAMBDA_TASK_ROOT=" + filepath.Dir(p.function.Path),
		"LAMBDA_RUNTIME_DIR=" + filepath.Dir(p.function.Path),
		"_HANDLER=bootstrap",
		"AWS_REGION=" + iam.Region,
		"AWS_DEFAULT_REGION=" + iam.Region,
		"AWS_ACCESS_KEY_ID=local",
		"AWS_SECRET_ACCESS_KEY=local",
		"AWS_EC2_METADATA_DISABLED=true",
		"AWS_LAMBDA_FUNCTION_NAME=" + p.function.Name,
		"AWS_LAMBDA_FUNCTION_VERSION=$LATEST",
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE=" + memoryMB,
		"AWS_LAMBDA_LOG_GROUP_NAME=/aws/lambda/" + p.function.Name,
		"AWS_LAMBDA_LOG_STREAM_NAME=" + started.UTC().Format("2006/01/02") + "/[$LATEST]" + randomHex(16),
	}
	if n := p.function.Concurrency; n > 1 {
		env = append(env, "AWS_LAMBDA_INITIALIZATION_TYPE=lambda-managed-instances", envMaxConcurrency+"="+strconv.Itoa(n))
	} else {
		env = append(env, "AWS_LAMBDA_INITIALIZATION_TYPE=on-demand")
	}
	env = append(env, p.function.Env...)
	// Last, since the last entry of a name wins.
	return append(env, envRuntimeAPI+"="+runtimeAPI)
}

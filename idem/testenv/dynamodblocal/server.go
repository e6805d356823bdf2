package dynamodblocal

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/testenv/child"
	"github.com/idem-go/idempotency/idem/testenv/npm"
)

// Start provisions DynamoDB Local as the package comment describes and waits
// until it answers. o may be nil. The context bounds the provisioning only; the
// server lives until Close, or until this process ends.
func Start(ctx context.Context, o *Options) (srv *child.Server, err error) {
	opts, err := o.withDefaults()
	switch {
	case err != nil:
	case opts.Endpoint != "":
		srv, err = given(ctx, opts)
	case opts.JarDir != "":
		srv, err = fromFolder(ctx, opts)
	default:
		if srv, err = fromNPM(ctx, opts); err != nil {
			err = fmt.Errorf("DynamoDB Local cannot be provisioned: %w\n"+
				"Other ways: set %s to a folder that holds DynamoDBLocal.jar and DynamoDBLocal_lib; "+
				"or set %s to a DynamoDB Local that runs, in Docker for example", err, EnvJarDir, EnvEndpoint)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("dynamodblocal: %w", err)
	}
	return srv, nil
}

// How long an endpoint may take to answer. The first answer of a DynamoDB Local takes two seconds, and many
// times as long on a busy machine.
const (
	firstTimeout = time.Minute
	givenTimeout = 5 * time.Second
)

func given(ctx context.Context, o Options) (*child.Server, error) {
	if err := awaitAnswer(ctx, o.Endpoint, givenTimeout); err != nil {
		return nil, fmt.Errorf("the given endpoint does not work: %w; start DynamoDB there, or unset %s "+
			"to have it provisioned", err, EnvEndpoint)
	}
	return child.Elsewhere(o.Endpoint, "given endpoint "+o.Endpoint+" (not started here, not stopped here)"), nil
}

func fromFolder(ctx context.Context, o Options) (*child.Server, error) {
	dir, err := filepath.Abs(o.JarDir)
	if err == nil {
		err = checkFolder(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; correct the option or %s", err, EnvJarDir)
	}
	java, err := findJava(ctx)
	if err != nil {
		return nil, err
	}
	return runJava(ctx, o, java, dir, "DynamoDB Local from the folder "+dir)
}

func fromNPM(ctx context.Context, o Options) (*child.Server, error) {
	// Before the download, which would be useless without Java.
	java, err := findJava(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := Package.Install(ctx, o.CacheDir, o.Log)
	if err != nil {
		return nil, err
	}
	return runJava(ctx, o, java, filepath.Join(dir, jarDir),
		fmt.Sprintf("DynamoDB Local from npm package %s (kept in %s)", Package, dir))
}

// The lock file leaves out what the package depends on: only its jar is used.
var (
	//go:embed package.json
	manifest []byte
	//go:embed package-lock.json
	lockFile []byte
)

// Package is the npm package that holds DynamoDB Local 1.25.1. AWS's licence
// allows using DynamoDB Local and not passing it on, so it is fetched.
var Package = npm.Package{
	Name: "amplify-dynamodb-simulator", Version: "2.9.30", Download: "57 MB",
	Manifest: manifest, Lock: lockFile,
}

// jarDir is DynamoDB Local's folder in the installed package.
const jarDir = "node_modules/amplify-dynamodb-simulator/emulator"

// awaitAnswer asks until endpoint answers like DynamoDB.
func awaitAnswer(ctx context.Context, endpoint string, most time.Duration) error {
	waiting, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("no answer within %v", most))
	defer cancel()
	var last error
	for {
		err := ask(waiting, endpoint)
		if err == nil {
			return nil
		}
		// The last error says more than the time-out.
		if last == nil || waiting.Err() == nil {
			last = err
		}
		select {
		case <-waiting.Done():
			return fmt.Errorf("%s: %w (last try: %v)", endpoint, context.Cause(waiting), last)
		case <-time.After(25 * time.Millisecond):
		}
	}
}

// asker uses proxies as the AWS SDK does, and keeps no connection open.
var asker = &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}}

// ask sends ListTables once. DynamoDB Local requires a signature but does not verify it. A
// server that verifies it refuses in DynamoDB's form, which counts as an answer too.
func ask(ctx context.Context, endpoint string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint+"/", strings.NewReader("{}"))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	req.Header.Set("X-Amz-Target", "DynamoDB_20120810.ListTables")
	req.Header.Set("Authorization",
		"AWS4-HMAC-SHA256 Credential=idemlocal/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0")
	res, err := asker.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 4096))
	if err != nil {
		return err
	}
	if res.Header.Get("X-Amzn-Requestid") == "" || res.StatusCode >= 500 {
		return fmt.Errorf("status %s does not look like DynamoDB: %.200q", res.Status, body)
	}
	return nil
}

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

	// DataDir is an absolute path where the data is kept, so that a server started there again has it.
	// Default: in memory.
	DataDir string

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

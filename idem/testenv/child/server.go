package child

import (
	"context"
	"fmt"
	"os/exec"
	"time"
)

// Server is a server that answers, at a URL without a trailing slash. Its process is nil if it
// runs elsewhere: nothing stops it then, and Ended is never ready.
type Server struct {
	*Process
	endpoint, source string
}

// Elsewhere is a server that was not started here.
func Elsewhere(endpoint, source string) *Server { return &Server{nil, endpoint, source} }

// Endpoint is the base URL: http://127.0.0.1:port unless it runs elsewhere.
func (s *Server) Endpoint() string { return s.endpoint }

// Source describes where the server comes from, and what runs it.
func (s *Server) Source() string { return s.source }

// Serve starts the named server and waits until it says where it listens.
func Serve(
	ctx context.Context, name, source string, cmd *exec.Cmd, log func(format string, args ...any),
) (*Server, error) {
	begin := time.Now()
	p, err := Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	address, err := p.awaitAddress(ctx)
	if err != nil {
		_ = p.Close() // it is of no use; its output says why
		return nil, fmt.Errorf("%s did not start: %w; the last it said:\n%s", name, err, p.output)
	}
	log("%s listens at http://%s after %v", name, address, time.Since(begin).Round(time.Millisecond))
	return &Server{p, "http://" + address, source}, nil
}

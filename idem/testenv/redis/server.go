package redis

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem/testenv/child"
	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
)

// EnvRequire set to 1 makes a test fail that would be skipped because there is no Redis.
const EnvRequire = "IDEM_REQUIRE_REDIS"

// Server is a Redis. It can be killed and started again: its address stays, and what it has written to
// its folder.
type Server struct{ *child.Daemon }

// Start starts a server that ends with the test. Settings are those of redis.conf, such as
// "appendonly=yes". It keeps everything in memory unless one of them says otherwise.
//
// If there is no Redis, the test is skipped with the reason, or fails if IDEM_REQUIRE_REDIS is 1. Call
// it from the test's own goroutine.
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	s, err := start(childtest.NeedFor(tb, EnvRequire, "Redis", find), settings)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

func start(path string, settings []string) (*Server, error) {
	d, err := child.NewDaemon(path, "idem-redis-")
	if err != nil {
		return nil, err
	}
	args := arguments(append([]string{"bind=127.0.0.1", "port=" + strconv.Itoa(d.Port), "save=", "appendonly=no"},
		settings...))
	d.Command = func() *exec.Cmd {
		cmd := exec.Command(path, args...)
		cmd.Dir = d.Folder
		return cmd
	}
	s := &Server{d}
	d.Ready = func() error { _, err := s.do("PING"); return err } // it is an error while it reads its files
	if err := d.Start(); err != nil {
		d.Close()
		return nil, err
	}
	return s, nil
}

func find() (string, error) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("neither redis-server nor valkey-server is on PATH; install Redis 7.0 or newer (for example " +
		"Debian and Ubuntu: apt install redis-server; macOS: brew install redis)")
}

// arguments makes --name value of each name=value. A value may have several words, or be empty.
func arguments(settings []string) (args []string) {
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		args = append(append(args, "--"+name), strings.Split(value, " ")...)
	}
	return args
}

// replyTimeout is for a busy machine.
const replyTimeout = 10 * time.Second

// do sends an inline command in a connection of its own, and returns the reply: a text or a number.
func (s *Server) do(format string, args ...any) (string, error) {
	c, err := net.DialTimeout("tcp", s.Address(), replyTimeout)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(c, format+"\r\n", args...); err != nil {
		return "", err
	}
	in := bufio.NewReader(c)
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, text := line[0], strings.TrimSuffix(line[1:], "\r\n")
	switch kind {
	case '-':
		return "", errors.New(text)
	case '$':
		n, err := strconv.Atoi(text)
		if err != nil {
			return "", err
		}
		body := make([]byte, max(0, n)) // -1 where there is no value
		_, err = io.ReadFull(in, body)
		return string(body), err
	}
	return text, nil
}

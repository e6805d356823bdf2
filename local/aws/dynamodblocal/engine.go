package dynamodblocal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// engine speaks the Docker Engine API (docs.docker.com/reference/api/engine),
// as little of it as one container needs.
type engine struct {
	address string // as people write it
	base    string
	client  *http.Client
}

// newEngine takes "unix:///path" or "tcp://host:port".
func newEngine(address string) (*engine, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("engine address %q: %w", address, err)
	}
	transport := &http.Transport{}
	e := &engine{address: address, client: &http.Client{Transport: transport}}
	switch u.Scheme {
	case "unix":
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", u.Path)
		}
		e.base = "http://docker"
	case "tcp", "http":
		if os.Getenv("DOCKER_TLS_VERIFY") != "" {
			return nil, fmt.Errorf("the engine at %s wants TLS (DOCKER_TLS_VERIFY), which is not supported here", address)
		}
		if !loopbackHost(u.Hostname()) {
			return nil, fmt.Errorf("the engine at %s is another machine's; its container could not be reached from here", address)
		}
		e.base = "http://" + u.Host
	default:
		return nil, fmt.Errorf("engine address %q is neither unix:///path nor tcp://host:port", address)
	}
	return e, nil
}

func loopbackHost(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// findEngine returns the first engine that answers.
func findEngine(ctx context.Context, host string) (*engine, error) {
	if host == NoDocker {
		return nil, errors.New("it is left out by option")
	}
	addresses := []string{host}
	if host == "" {
		addresses = usualSockets()
	}
	if len(addresses) == 0 {
		return nil, errors.New("no engine's socket on this machine")
	}
	var failed []error
	for _, address := range addresses {
		e, err := newEngine(address)
		if err == nil {
			err = e.ping(ctx)
		}
		if err == nil {
			return e, nil
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

// usualSockets are the sockets that exist of the engine, the rootless engine
// and Docker Desktop.
func usualSockets() []string {
	paths := []string{"/var/run/docker.sock"}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		paths = append(paths, filepath.Join(dir, "docker.sock"))
	}
	if home, err := os.UserHomeDir(); err == nil {
		paths = append(paths, filepath.Join(home, ".docker", "run", "docker.sock"))
	}
	var addresses []string
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
			addresses = append(addresses, "unix://"+path)
		}
	}
	return addresses
}

var apiVersion = regexp.MustCompile(`^1\.\d+$`)

// ping asks whether the engine answers, and takes its API version for all
// further calls.
func (e *engine) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	res, err := e.send(ctx, http.MethodGet, "/_ping", nil)
	if err != nil {
		return fmt.Errorf("no engine answers at %s: %w", e.address, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("no engine answers at %s: status %s", e.address, res.Status)
	}
	if v := res.Header.Get("Api-Version"); apiVersion.MatchString(v) {
		e.base += "/v" + v
	}
	return nil
}

func (e *engine) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, e.base+path, r)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return e.client.Do(req)
}

// engineError is a refusal.
type engineError struct {
	call    string
	status  int
	message string
}

func (e *engineError) Error() string {
	return fmt.Sprintf("the engine refused %s: status %d: %s", e.call, e.status, e.message)
}

// call sends, and decodes the answer into out unless that is nil.
func (e *engine) call(ctx context.Context, method, path string, body, out any) error {
	res, err := e.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		return refusal(method+" "+path, res)
	}
	if out == nil {
		_, err = io.Copy(io.Discard, res.Body)
		return err
	}
	return json.NewDecoder(res.Body).Decode(out)
}

func refusal(call string, res *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(res.Body, 4096)) // what there is of it
	var body struct{ Message string }
	if json.Unmarshal(raw, &body) != nil || body.Message == "" {
		body.Message = strings.TrimSpace(string(raw))
	}
	return &engineError{call, res.StatusCode, body.Message}
}

// pull has the image fetched. The engine answers 200 and streams progress; a
// failure is one of the messages in that stream.
func (e *engine) pull(ctx context.Context, repository, tag string) error {
	query := url.Values{"fromImage": {repository}, "tag": {tag}}
	res, err := e.send(ctx, http.MethodPost, "/images/create?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		return refusal("pulling "+repository+":"+tag, res)
	}
	for messages := json.NewDecoder(res.Body); ; {
		var message struct {
			Error       string `json:"error"`
			ErrorDetail struct {
				Message string `json:"message"`
			} `json:"errorDetail"`
		}
		if err := messages.Decode(&message); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("pulling %s:%s broke off: %w", repository, tag, err)
		}
		if text := cmp.Or(message.ErrorDetail.Message, message.Error); text != "" {
			return fmt.Errorf("pulling %s:%s failed: %s", repository, tag, text)
		}
	}
}

// attachment is the standard streams of a container over one connection.
type attachment struct {
	io.ReadWriteCloser
	cancel context.CancelFunc
}

// Close ends the container's standard input.
func (a *attachment) Close() error {
	defer a.cancel()
	return a.ReadWriteCloser.Close()
}

// attach opens the container's standard streams. The context bounds the call,
// not the connection.
func (e *engine) attach(ctx context.Context, id string) (*attachment, error) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, cancel)()
	req, err := http.NewRequestWithContext(lasting, http.MethodPost,
		e.base+"/containers/"+id+"/attach?stream=1&stdin=1&stdout=1&stderr=1", nil)
	if err != nil {
		cancel()
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "tcp")
	res, err := e.client.Do(req)
	if err != nil {
		cancel()
		return nil, err
	}
	if stream, ok := res.Body.(io.ReadWriteCloser); ok && res.StatusCode == http.StatusSwitchingProtocols {
		return &attachment{stream, cancel}, nil
	}
	defer cancel()
	defer res.Body.Close()
	return nil, refusal("attaching to the container", res)
}

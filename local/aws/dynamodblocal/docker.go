package dynamodblocal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/idem-go/idempotency/local/aws/child"
)

// The image has the same version as the npm package holds, so that both ways
// behave alike.
const (
	imageRepository = "amazon/dynamodb-local"
	imageTag        = "1.25.1"
)

// pullTimeout bounds the fetching of the image, about 500 MB unpacked.
const pullTimeout = 10 * time.Minute

const containerPort = "8000/tcp"

// containerScript runs DynamoDB Local until it or standard input ends. The
// engine ends the container's input when the attached connection breaks, so the
// container goes with the process that holds the connection. The shell gives
// background jobs no standard input, hence descriptor 3.
var containerScript = "java -Djava.library.path=./" + libName + " -jar " + jarName + " " +
	strings.Join(serverArgs, " ") + " -port 8000 & server=$!; " +
	"exec 3<&0; (cat <&3 >/dev/null; kill $server) & wait $server"

type portBinding struct {
	HostIP   string `json:"HostIp"`
	HostPort string
}

// containerSpec is the body of "create a container".
type containerSpec struct {
	Image        string
	Entrypoint   []string
	Env          []string
	Labels       map[string]string
	ExposedPorts map[string]struct{}
	OpenStdin    bool
	StdinOnce    bool // the input ends when the attached client goes
	AttachStdin  bool
	AttachStdout bool
	AttachStderr bool
	HostConfig   hostConfig
}

type hostConfig struct {
	AutoRemove   bool
	PortBindings map[string][]portBinding
}

func newContainerSpec() containerSpec {
	return containerSpec{
		Image:        imageRepository + ":" + imageTag,
		Entrypoint:   []string{"sh", "-c", containerScript},
		Env:          []string{telemetryOff},
		Labels:       map[string]string{"idem": "dynamodblocal"},
		ExposedPorts: map[string]struct{}{containerPort: {}},
		OpenStdin:    true, StdinOnce: true,
		AttachStdin: true, AttachStdout: true, AttachStderr: true,
		HostConfig: hostConfig{
			AutoRemove: true,
			// Port 0: the engine picks a free one when it binds.
			PortBindings: map[string][]portBinding{containerPort: {{HostIP: "127.0.0.1", HostPort: "0"}}},
		},
	}
}

// fromDocker runs a container on an engine that answers.
func fromDocker(ctx context.Context, s settings) (*Server, error) {
	e, err := findEngine(ctx, s.DockerHost)
	if err != nil {
		return nil, err
	}
	if err := e.provideImage(ctx, s); err != nil {
		return nil, err
	}
	c, err := e.create(ctx)
	if err != nil {
		return nil, err
	}
	endpoint, err := c.run(ctx, s.answerTimeout())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the container did not start: %w; the last it said:\n%s", err, c.output), c.remove())
	}
	s.Log("container %.12s answers at %s", c.id, endpoint)
	return &Server{
		endpoint: endpoint,
		source:   fmt.Sprintf("Docker image %s:%s, container %.12s of the engine at %s", imageRepository, imageTag, c.id, e.address),
		ended:    c.ended,
		stop:     c.remove,
	}, nil
}

// provideImage pulls the image unless the engine has it.
func (e *engine) provideImage(ctx context.Context, s settings) error {
	ctx, cancel := context.WithTimeoutCause(ctx, pullTimeout, fmt.Errorf("pulling took longer than %v", pullTimeout))
	defer cancel()
	err := e.call(ctx, http.MethodGet, "/images/"+imageRepository+":"+imageTag+"/json", nil, nil)
	var refused *engineError
	if err == nil || !errors.As(err, &refused) || refused.status != http.StatusNotFound {
		return err
	}
	s.Log("pulling the Docker image %s:%s (once)", imageRepository, imageTag)
	if err := e.pull(ctx, imageRepository, imageTag); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return nil
}

// container is one that was created.
type container struct {
	engine *engine
	id     string
	output *child.Tail
	stream *attachment   // its standard streams, once attached
	ended  chan struct{} // closed when its output ends
}

func (e *engine) create(ctx context.Context) (*container, error) {
	var created struct{ ID string }
	if err := e.call(ctx, http.MethodPost, "/containers/create", newContainerSpec(), &created); err != nil {
		return nil, fmt.Errorf("create a container: %w", err)
	}
	if created.ID == "" {
		return nil, errors.New("create a container: the engine gave no id")
	}
	return &container{engine: e, id: created.ID, output: child.NewTail(), ended: make(chan struct{})}, nil
}

// run attaches before it starts, so that no output is missed and the container
// never runs without its tie to this process.
func (c *container) run(ctx context.Context, timeout time.Duration) (string, error) {
	var err error
	if c.stream, err = c.engine.attach(ctx, c.id); err != nil {
		return "", err
	}
	go func() {
		defer close(c.ended)
		demultiplex(c.output, c.stream)
	}()
	if err := c.engine.call(ctx, http.MethodPost, "/containers/"+c.id+"/start", nil, nil); err != nil {
		return "", err
	}
	endpoint, err := c.endpoint(ctx)
	if err != nil {
		return "", err
	}
	return endpoint, awaitAnswer(ctx, endpoint, timeout, c.ended)
}

// endpoint reads the port that the engine has picked.
func (c *container) endpoint(ctx context.Context) (string, error) {
	var state struct {
		NetworkSettings struct{ Ports map[string][]portBinding }
	}
	if err := c.engine.call(ctx, http.MethodGet, "/containers/"+c.id+"/json", nil, &state); err != nil {
		return "", err
	}
	for _, binding := range state.NetworkSettings.Ports[containerPort] {
		if binding.HostIP == "127.0.0.1" {
			return "http://127.0.0.1:" + binding.HostPort, nil
		}
	}
	return "", fmt.Errorf("the engine did not bind the port to 127.0.0.1 but %v", state.NetworkSettings.Ports[containerPort])
}

// remove kills and removes the container, and returns when it is gone.
func (c *container) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := c.engine.call(ctx, http.MethodDelete, "/containers/"+c.id+"?force=1&v=1", nil, nil)
	// It may be gone or going already: it removes itself when it ends.
	var refused *engineError
	if errors.As(err, &refused) && (refused.status == http.StatusNotFound || refused.status == http.StatusConflict) {
		err = nil
	}
	if c.stream != nil {
		_ = c.stream.Close() // whatever it says, the container is removed
		<-c.ended
	}
	c.engine.client.CloseIdleConnections()
	return err
}

// demultiplex copies both streams of a container to w. Each frame has a header
// of eight bytes, the last four of which are its length (Engine API, "Attach to
// a container", stream format). It ends with the stream.
func demultiplex(w io.Writer, r io.Reader) {
	var header [8]byte
	for {
		if _, err := io.ReadFull(r, header[:]); err != nil {
			return
		}
		if _, err := io.CopyN(w, r, int64(binary.BigEndian.Uint32(header[4:]))); err != nil {
			return
		}
	}
}

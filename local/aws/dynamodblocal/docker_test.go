package dynamodblocal

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestContainerRunsAndIsRemoved(t *testing.T) {
	isolate(t)
	engine := startStubEngine(t)
	t.Setenv(EnvDocker, engine.address)
	srv, err := Start(t.Context(), nil)
	require.NoError(t, err)
	requireAnswers(t, srv.Endpoint())
	require.Equal(t, engine.running.URL, srv.Endpoint())
	require.Contains(t, srv.Source(), imageRepository+":"+imageTag)
	require.Contains(t, srv.Source(), engine.address)
	require.Equal(t, []string{
		"GET /_ping",
		"GET /images/amazon/dynamodb-local:" + imageTag + "/json",
		"POST /images/create",
		"POST /containers/create",
		"POST /containers/" + stubContainer + "/attach",
		"POST /containers/" + stubContainer + "/start",
		"GET /containers/" + stubContainer + "/json",
	}, engine.calls)

	require.NoError(t, srv.Close())
	require.NoError(t, srv.Close())
	engine.requireEnded(t)
	require.Equal(t, "DELETE /containers/"+stubContainer, engine.calls[len(engine.calls)-1])
	require.Len(t, engine.calls, 8, "closed once")
}

func TestContainerIsBoundToLoopbackAndToThisProcess(t *testing.T) {
	isolate(t)
	engine := startStubEngine(t)
	srv, err := Start(t.Context(), &Options{DockerHost: engine.address})
	require.NoError(t, err)
	defer srv.Close()
	created := engine.created
	require.Equal(t, imageRepository+":"+imageTag, created["Image"])
	require.Equal(t, []any{telemetryOff}, created["Env"])
	require.Equal(t, true, created["OpenStdin"])
	require.Equal(t, true, created["StdinOnce"])
	require.Equal(t, map[string]any{
		"AutoRemove":   true,
		"PortBindings": map[string]any{"8000/tcp": []any{map[string]any{"HostIp": "127.0.0.1", "HostPort": "0"}}},
	}, created["HostConfig"])
}

// A process that is killed closes its connections and nothing else.
func TestContainerEndsWithTheConnection(t *testing.T) {
	isolate(t)
	engine := startStubEngine(t)
	e, err := findEngine(t.Context(), engine.address)
	require.NoError(t, err)
	s, err := (&Options{}).settings()
	require.NoError(t, err)
	require.NoError(t, e.provideImage(t.Context(), s))
	c, err := e.create(t.Context())
	require.NoError(t, err)
	_, err = c.run(t.Context(), time.Minute)
	require.NoError(t, err)

	require.NoError(t, c.stream.Close())
	engine.requireEnded(t)
	require.NoError(t, c.remove(), "removing what is gone is no error")
}

func TestImageThatIsThereIsNotPulled(t *testing.T) {
	isolate(t)
	engine := startStubEngine(t)
	engine.hasImage = true
	srv, err := Start(t.Context(), &Options{DockerHost: engine.address})
	require.NoError(t, err)
	require.NoError(t, srv.Close())
	require.NotContains(t, engine.calls, "POST /images/create")
}

func TestContainerThatFails(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*stubEngine)
		want  string
	}{
		"ends at once":        {func(e *stubEngine) { e.dies = "Error: no such library\n" }, "no such library"},
		"cannot be started":   {func(e *stubEngine) { e.startError = "port is taken" }, "port is taken"},
		"bound to everything": {func(e *stubEngine) { e.bindHost = "0.0.0.0" }, "did not bind the port to 127.0.0.1"},
		"image not pulled":    {func(e *stubEngine) { e.pullError = "toomanyrequests" }, "toomanyrequests"},
	} {
		t.Run(name, func(t *testing.T) {
			isolate(t)
			engine := startStubEngine(t)
			test.spoil(engine)
			s, err := (&Options{DockerHost: engine.address}).settings()
			require.NoError(t, err)
			_, err = fromDocker(t.Context(), s)
			require.ErrorContains(t, err, test.want)
			if engine.created != nil {
				engine.requireEnded(t)
			}
		})
	}
}

func TestEngineIsNotUsedUnlessItAnswersHere(t *testing.T) {
	isolate(t)
	dead := filepath.Join(t.TempDir(), "dead.sock")
	listener, err := net.Listen("unix", dead)
	require.NoError(t, err)
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, listener.Close())
	for address, want := range map[string]string{
		"unix://" + dead:              "no engine answers",
		"unix:///nonexistent/sock":    "no engine answers",
		"tcp://127.0.0.1:1":           "no engine answers",
		"tcp://docker.example:2375":   "another machine",
		"ssh://somebody@example":      "neither unix:///path nor tcp://host:port",
		NoDocker:                      "left out by option",
		"tcp://127.0.0.1:2375:broken": "engine address",
	} {
		_, err := findEngine(t.Context(), address)
		require.ErrorContains(t, err, want, address)
	}
	t.Setenv("DOCKER_TLS_VERIFY", "1")
	_, err = findEngine(t.Context(), "tcp://127.0.0.1:2376")
	require.ErrorContains(t, err, "TLS")
}

// The script runs in a container; what it needs is a shell and java.
func TestContainerScript(t *testing.T) {
	t.Run("ends with its input", func(t *testing.T) {
		binaries(t, []string{"sh", "cat", "sleep"}, map[string]string{"java": `echo "$@"; exec sleep 600`})
		cmd := exec.Command("sh", "-c", containerScript)
		stdin, err := cmd.StdinPipe()
		require.NoError(t, err)
		// A file, for the pipe of a buffer would be waited for as well.
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		require.NoError(t, err)
		defer out.Close()
		cmd.Stdout, cmd.Stderr = out, out
		require.NoError(t, cmd.Start())
		said := func() string {
			raw, err := os.ReadFile(out.Name())
			require.NoError(t, err)
			return string(raw)
		}
		require.Eventually(t, func() bool { return said() != "" }, 20*time.Second, 5*time.Millisecond)
		require.NoError(t, stdin.Close())
		require.Error(t, cmd.Wait(), "java was killed")
		require.Contains(t, said(), "-Djava.library.path=./DynamoDBLocal_lib -jar DynamoDBLocal.jar -inMemory -sharedDb -disableTelemetry -port 8000\n")
	})
	t.Run("ends with java", func(t *testing.T) {
		binaries(t, []string{"sh", "cat"}, map[string]string{"java": "exit 3"})
		cmd := exec.Command("sh", "-c", containerScript)
		stdin, err := cmd.StdinPipe() // stays open
		require.NoError(t, err)
		defer stdin.Close()
		var exit *exec.ExitError
		require.ErrorAs(t, cmd.Run(), &exit)
		require.Equal(t, 3, exit.ExitCode())
	})
}

func TestDemultiplexJoinsBothStreams(t *testing.T) {
	stream := bytes.NewBuffer(nil)
	stream.Write([]byte{1, 0, 0, 0, 0, 0, 0, 3})
	stream.WriteString("out")
	stream.Write([]byte{2, 0, 0, 0, 0, 0, 0, 4})
	stream.WriteString(" err")
	stream.Write([]byte{1, 0, 0, 0, 0, 0, 0, 9})
	stream.WriteString(" cut")
	var got bytes.Buffer
	demultiplex(&got, stream)
	require.Equal(t, "out err cut", got.String())
}

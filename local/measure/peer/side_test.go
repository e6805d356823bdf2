package peer

import (
	"bufio"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/idem/testenv/npm"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
	"github.com/idem-go/idempotency/local/proof/faultnet"
	"github.com/idem-go/idempotency/local/proof/rig"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// call is one of a handler.
type call struct {
	Number   int
	Key      string
	Waits    bool // the handler, until the story lets it go on
	Fails    bool
	Changes  bool // its own input
	Size     int  // of the result
	Messages []events.SQSMessage
	Once     bool // the operation must not run twice
}

// answer is what a caller gets: the number of the call whose result it is, or an error.
type answer struct {
	Number int
	Of     int
	Error  string
	Took   time.Duration
}

func (a answer) String() string {
	if a.Error != "" {
		return a.Error
	}
	return fmt.Sprintf("the result of call %d", a.Of)
}

// world is where a story takes place.
type world struct {
	t     *testing.T
	start func(*world, *faultnet.Network) *instance

	mu      sync.Mutex
	begun   map[int]chan struct{}
	ended   map[int]chan answer
	effects int
}

func newWorld(t *testing.T, start func(*world, *faultnet.Network) *instance) *world {
	return &world{t: t, start: start, begun: map[int]chan struct{}{}, ended: map[int]chan answer{}}
}

// process starts one with a network of its own.
func (w *world) process() (*instance, *faultnet.Network) {
	n := faultnet.New()
	return w.start(w, n), n
}

func (w *world) begunOf(number int) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun[number] == nil {
		w.begun[number] = make(chan struct{}, 1)
	}
	return w.begun[number]
}

func (w *world) endedOf(number int) chan answer {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended[number] == nil {
		w.ended[number] = make(chan answer, 1)
	}
	return w.ended[number]
}

// handles notes that the handler has begun, which is its effect.
func (w *world) handles(number int) {
	w.mu.Lock()
	w.effects++
	w.mu.Unlock()
	select {
	case w.begunOf(number) <- struct{}{}:
	default: // a message of a batch after the first one
	}
}

func (w *world) runs() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.effects
}

const patience = 2 * time.Minute // only ends a broken test: a busy machine takes half a minute to start Node.js

func (w *world) untilBegun(number int) {
	select {
	case <-w.begunOf(number):
	case a := <-w.endedOf(number):
		require.Fail(w.t, "the handler has not run", "call %d: %v", number, a)
	case <-time.After(patience):
		require.Fail(w.t, "the handler has not begun", "call %d", number)
	}
}

func (w *world) answer(number int) answer {
	select {
	case a := <-w.endedOf(number):
		return a
	case <-time.After(patience):
		require.Fail(w.t, "no answer", "call %d", number)
		return answer{}
	}
}

// do makes a call and returns its answer.
func (w *world) do(i *instance, c call) answer {
	i.begin(c)
	return w.answer(c.Number)
}

// remaining is the time of an invocation in milliseconds, over when an attempt's claim is.
const (
	remaining = 1000
	over      = 2 * time.Second
)

// instance is a process that runs calls, which it gets as lines.
type instance struct {
	w     *world
	stdin io.WriteCloser
	cmd   *exec.Cmd
}

var (
	//go:embed package.json
	manifest []byte
	//go:embed package-lock.json
	lock []byte
	//go:embed peer.mjs
	script string
	//go:embed powertools.mjs
	powertoolsScript string
)

var powertools = npm.Package{
	Name: "@aws-lambda-powertools/idempotency", Version: "2.35.0", Download: "6 MB", Manifest: manifest, Lock: lock,
}

// tableOfIDs makes a table of Powertools' form, whose name is as long as that of [rig.Table].
func tableOfIDs(t *testing.T) string {
	table := "peers-" + rand.Text()
	_, err := dynamotest.Client(t).CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: "S"}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: "HASH"}},
	})
	require.NoError(t, err)
	rig.DeleteTable(t, table)
	return table
}

// installed returns the folder of Powertools. It skips the test if npm is needed and missing.
func installed(t *testing.T) string {
	dir, err := powertools.Install(t.Context(), "", t.Logf)
	if _, missing := exec.LookPath("npm"); err != nil && missing != nil {
		t.Skip(err)
	}
	require.NoError(t, err)
	return dir
}

// startOurs returns what starts a process of the library.
func startOurs(t *testing.T, remaining int) func(*world, *faultnet.Network) *instance {
	program := testmain.Program(t, "./ours")
	return startProcess(t, rig.Table(t), remaining, func() *exec.Cmd { return exec.Command(program) })
}

// startScript returns what starts a process of Node.js with the script of a side.
func startScript(t *testing.T, side string, remaining int) func(*world, *faultnet.Network) *instance {
	table, dir := tableOfIDs(t), installed(t)
	return startProcess(t, table, remaining, func() *exec.Cmd {
		cmd := exec.Command("node", "--input-type=module", "--eval", script+side)
		cmd.Dir = dir
		return cmd
	})
}

// startProcess returns what starts a process that runs calls, whose claims last so many milliseconds.
func startProcess(t *testing.T, table string, remaining int, command func() *exec.Cmd,
) func(*world, *faultnet.Network) *instance {
	return func(w *world, n *faultnet.Network) *instance {
		cmd := command()
		cmd.Env = append(os.Environ(), "PEER_ENDPOINT="+n.Serve(t, dynamotest.Endpoint(t)), "PEER_TABLE="+table,
			"AWS_REGION=eu-central-1", "AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local", "AWS_MAX_ATTEMPTS=3",
			"AWS_LAMBDA_FUNCTION_NAME=peer", "POWERTOOLS_DEV=true", "PEER_REMAINING="+strconv.Itoa(remaining))
		stdin, err := cmd.StdinPipe()
		require.NoError(t, err)
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		p := &instance{w, stdin, cmd}
		read := make(chan struct{})
		go func() {
			defer close(read)
			for lines := bufio.NewScanner(stdout); lines.Scan(); {
				var line struct {
					answer
					Begun bool
				}
				if json.Unmarshal(lines.Bytes(), &line) != nil {
					continue // a warning
				}
				if line.Begun {
					w.handles(line.Number)
				} else {
					w.endedOf(line.Number) <- line.answer
				}
			}
		}()
		t.Cleanup(func() {
			_ = stdin.Close()
			p.kill()
			<-read
			_ = cmd.Wait()
		})
		return p
	}
}

func (p *instance) send(v any) {
	line, err := json.Marshal(v)
	require.NoError(p.w.t, err)
	_, err = p.stdin.Write(append(line, '\n'))
	require.NoError(p.w.t, err)
}

func (p *instance) begin(c call)       { p.send(c) }
func (p *instance) proceed(number int) { p.send(map[string]int{"Proceed": number}) }
func (p *instance) kill()              { _ = p.cmd.Process.Kill() }

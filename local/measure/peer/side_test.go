package peer

import (
	"bufio"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/idem/testenv/npm"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
	"github.com/idem-go/idempotency/local/proof/faultnet"
	"github.com/idem-go/idempotency/local/proof/rig"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// call is one of a handler.
type call struct {
	Number    int
	Key       string
	Remaining int  // milliseconds that the invocation has
	Waits     bool // the handler, until the story lets it go on
	Fails     bool
	Changes   bool // its own input
	Size      int  // of the result
	once      bool // the operation must not run twice
}

// answer is what a caller gets: the number of the call whose result it is, or an error.
type answer struct {
	Number int
	Of     int
	Error  string
}

func (a answer) String() string {
	if a.Error != "" {
		return a.Error
	}
	return fmt.Sprintf("the result of call %d", a.Of)
}

// instance is a process that runs calls.
type instance interface {
	begin(c call)
	proceed(number int)
	kill()
}

// world is where a story takes place.
type world struct {
	t     *testing.T
	start func(*world, *faultnet.Network) instance

	mu      sync.Mutex
	begun   map[int]chan struct{}
	ended   map[int]chan answer
	effects int
}

func newWorld(t *testing.T, start func(*world, *faultnet.Network) instance) *world {
	return &world{t: t, start: start, begun: map[int]chan struct{}{}, ended: map[int]chan answer{}}
}

// process starts one with a network of its own.
func (w *world) process() (instance, *faultnet.Network) {
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
	w.begunOf(number) <- struct{}{}
}

const patience = 30 * time.Second

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
func (w *world) do(i instance, c call) answer {
	i.begin(c)
	return w.answer(c.Number)
}

// remaining is the time of an invocation in milliseconds, over when an attempt's claim is.
const (
	remaining = 1000
	over      = 2 * time.Second
)

// node runs Powertools.
type node struct {
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

// startPowertools returns what starts a process of Node.js, whose records are in a table of Powertools' form.
func startPowertools(t *testing.T) func(*world, *faultnet.Network) instance {
	table := tableOfIDs(t)
	dir := installed(t)
	return func(w *world, n *faultnet.Network) instance {
		cmd := exec.Command("node", "--input-type=module", "--eval", script)
		cmd.Dir, cmd.Stderr = dir, io.Discard
		cmd.Env = append(os.Environ(), "PEER_ENDPOINT="+n.Serve(t, dynamotest.Endpoint(t)), "PEER_TABLE="+table,
			"AWS_MAX_ATTEMPTS=3", "POWERTOOLS_DEV=true")
		stdin, err := cmd.StdinPipe()
		require.NoError(t, err)
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		p := &node{w, stdin, cmd}
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

func (p *node) send(v any) {
	line, err := json.Marshal(v)
	require.NoError(p.w.t, err)
	_, err = p.stdin.Write(append(line, '\n'))
	require.NoError(p.w.t, err)
}

func (p *node) begin(c call)       { p.send(c) }
func (p *node) proceed(number int) { p.send(map[string]int{"Proceed": number}) }
func (p *node) kill()              { _ = p.cmd.Process.Kill() }

// ours is a process with an engine.
type ours struct {
	w      *world
	engine *idem.Engine
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	waiting map[int]chan struct{}
}

// startOurs returns what starts an engine over one table.
func startOurs(t *testing.T) func(*world, *faultnet.Network) instance {
	table := rig.Table(t)
	return func(w *world, n *faultnet.Network) instance {
		client, err := dynamostore.NewClient(aws.Config{Region: "eu-central-1",
			Credentials: credentials.NewStaticCredentialsProvider("local", "local", "")},
			&dynamostore.ClientOptions{Endpoint: n.Serve(t, dynamotest.Endpoint(t))})
		require.NoError(t, err)
		store := rig.Store(t, client, table)
		engine, err := idem.New(store, &idem.Options{
			Lease: remaining * time.Millisecond, Margin: 200 * time.Millisecond,
			ClaimBudget: patience, FinishBudget: patience,
			Observer: func(context.Context, notice.Notice) {},
		})
		require.NoError(t, err)
		p := &ours{w: w, engine: engine, waiting: map[int]chan struct{}{}}
		p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(t.Context()))
		t.Cleanup(p.kill)
		return p
	}
}

func (p *ours) gate(number int) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting[number] == nil {
		p.waiting[number] = make(chan struct{})
	}
	return p.waiting[number]
}

func (p *ours) proceed(number int) { close(p.gate(number)) }
func (p *ours) kill()              { p.cancel() }

type input struct {
	Key    string
	Amount *int
}

type result struct {
	Number int
	Text   string
}

func (p *ours) begin(c call) {
	op := idem.Operation{Name: "charge", Repeat: idem.Repeatable}
	if c.once {
		op = idem.Operation{Name: "charge once"}
	}
	go func() {
		amount := 1
		out, err := idem.Do(p.ctx, p.engine, op.Key(idem.SingleTenant, c.Key), input{c.Key, &amount},
			func(ctx context.Context, in input) (result, error) {
				p.w.handles(c.Number)
				if c.Waits {
					select {
					case <-p.gate(c.Number):
					case <-p.ctx.Done():
						return result{}, p.ctx.Err()
					}
				}
				if c.Changes {
					*in.Amount++
				}
				if c.Fails {
					return result{}, errors.New("declined")
				}
				return result{c.Number, strings.Repeat("x", c.Size)}, nil
			})
		a := answer{Number: c.Number, Of: out.Number}
		if err != nil {
			a.Error = nameOf(err)
		}
		p.w.endedOf(c.Number) <- a
	}()
}

func nameOf(err error) string {
	for name, is := range map[string]error{
		"ErrInFlight": idem.ErrInFlight, "ErrOutcomeUnknown": idem.ErrOutcomeUnknown,
		"ErrStoreUnavailable": idem.ErrStoreUnavailable,
	} {
		if errors.Is(err, is) {
			return name
		}
	}
	return err.Error()
}

package large

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/child"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/local/proof/faultnet"
	"github.com/idem-go/idempotency/local/proof/rig"
	"github.com/idem-go/idempotency/local/proof/rig/register"
	"github.com/idem-go/idempotency/local/proof/rig/runs"
)

// processes that do the work at the same time.
const processes = 6

// world is a database and what is outside of it: processes, a provider, a queue, callers, and what all of them got.
type world struct {
	t        *testing.T
	requests []int
	config   config
	database *rig.Database
	db       *dynamodb.Client // without faults
	store    *dynamostore.AdminStore
	attempts *faultnet.Network
	outside  *faultnet.Network // of those who settle what attempts leave open
	faults   *faultnet.Random
	recorder *rig.Recorder
	clock    clock
	history  *register.History

	mu       sync.Mutex
	random   *rand.Rand
	calm     bool
	ahead    time.Duration
	workers  [processes]*child.Server
	frozen   [processes]bool
	killed   map[int]bool // by process id
	calls    int
	ended    map[int]bool
	asked    int // a request that was parked, which an operator looks at
	counts   map[string]int
	commits  map[string]int         // transactions by their token, from 1
	changes  map[string]int         // from outside, by record
	unsure   map[string]int         // of those that were sent
	messages map[int]map[string]int // by request and id: the run that the body names
	queue    []int                  // messages that bring a worker
	waiting  []int                  // those that come again after a sweep
	late     sync.WaitGroup         // calls that have no answer yet

	disturbing              sync.Mutex
	disturbed, disturbances int      // after so many sendings, so often
	hidden                  []string // open questions that no sweep would find
}

// newWorld is one for so many requests, without what a table without transactions does not have.
func newWorld(t *testing.T, count int, c config, fate func(n, run int) string) *world {
	w := &world{t: t, config: c, history: register.NewHistory(), random: rand.New(rand.NewPCG(*seed, 0)),
		database: rig.NewDatabase(t), attempts: faultnet.New(), outside: faultnet.New(), killed: map[int]bool{},
		ended: map[int]bool{}, counts: map[string]int{},
		commits: map[string]int{}, changes: map[string]int{}, unsure: map[string]int{}, messages: map[int]map[string]int{},
		// The relay's clock is the machine's, and takes a message of tomorrow for one that is not due.
		ahead: -20 * time.Hour, clock: clock{file: filepath.Join(t.TempDir(), "clock")},
	}
	for n := 0; len(w.requests) < count; n++ {
		if m := modeOf(n); !c.WithoutTransactions || !m.commits && !m.later {
			w.requests = append(w.requests, n)
		}
	}
	require.NoError(t, w.clock.set(w.ahead))
	w.recorder = rig.NewRecorder(t, fate, func(mux *http.ServeMux) {
		mux.HandleFunc("POST /known", w.known)
		mux.HandleFunc("POST /send", w.send)
	})
	w.recorder.Now = w.clock.now
	w.db = dynamodb.New(dynamodb.Options{
		BaseEndpoint: &w.database.URL, Region: "us-east-1", Retryer: retry.NewStandard(),
		Credentials: credentials.NewStaticCredentialsProvider("idemlocal", "idemlocal", ""),
	})
	w.config.Records, w.config.Books = "records", "books"
	for _, table := range []string{w.config.Records, w.config.Books} {
		require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.WithoutStream{Client: w.db}, table))
	}
	for i := range accounts {
		_, err := w.db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &w.config.Books,
			Item: map[string]types.AttributeValue{
				"pk": text(account(i)), "sk": text("balance"),
				"balance": &types.AttributeValueMemberN{Value: strconv.Itoa(opening)},
			}})
		require.NoError(t, err)
	}
	var err error
	w.store, err = dynamostore.NewAdminStore(w.db, w.config.Records,
		&dynamostore.Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute})
	require.NoError(t, err)
	w.config.World, w.config.Clock = w.recorder.URL, w.clock.file
	w.config.Attempts, w.config.Outside = w.attempts.Serve(t, w.database.URL), w.outside.Serve(t, w.database.URL)
	t.Cleanup(func() {
		for _, p := range w.workers {
			if p != nil {
				_ = p.Close()
			}
		}
	})
	return w
}

// trouble strikes calls of all kinds.
func (w *world) trouble() {
	w.faults = faultnet.NewRandom(*seed, w.kill, rig.AnyFault(12, 4, 1.5))
	w.attempts.Set(w.rule)
	w.outside.Set(func(c *faultnet.Call) faultnet.Fault {
		w.watch(c)
		return w.faults.Rule(c)
	})
}

// watch counts the changes from outside, and those that got no reply and so may have been made.
func (w *world) watch(c *faultnet.Call) {
	var in struct {
		ClientRequestToken, UpdateExpression string
		Key                                  map[string]struct{ S string }
		TransactItems                        []struct {
			Put struct{ Item map[string]struct{ S string } }
		}
	}
	_ = c.Read(&in) // the SDK has written it
	id := in.Key[schema.PK].S
	switch {
	case c.Operation == "TransactWriteItems": // a change with its entry
		id = in.TransactItems[len(in.TransactItems)-1].Put.Item[schema.PK].S
	case c.Operation != "UpdateItem", strings.HasPrefix(in.UpdateExpression, "SET open_due"): // a postponed question
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unsure[id]++
	c.OnPass = func(r *faultnet.Reply) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.unsure[id]--
		token := "outside " + in.ClientRequestToken // a try again has the same
		if r.Status == http.StatusOK && (in.ClientRequestToken == "" || w.commits[token] == 0) {
			w.changes[id]++
			w.commits[token]++
		}
	}
}

// locked does something under the lock.
func locked[T any](w *world, do func() T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return do()
}

func (w *world) n(max int) int           { return locked(w, func() int { return w.random.IntN(max) }) }
func (w *world) tally(what string)       { locked(w, func() int { w.counts[what]++; return 0 }) }
func (w *world) isCalm() bool            { return locked(w, func() bool { return w.calm }) }
func (w *world) chance(percent int) bool { return w.n(100) < percent && !w.isCalm() }

// kill kills the process that makes a call.
func (w *world) kill(c *faultnet.Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.killed[c.PID] = true
	_ = syscall.Kill(c.PID, syscall.SIGKILL) // it may have been killed over another call
}

// rule has one in a few transactions get no answer at all, whichever way it is tried: it arrives while its attempt
// still tries, or after it has given up. Other calls are struck at random.
func (w *world) rule(c *faultnet.Call) faultnet.Fault {
	if c.Operation != "TransactWriteItems" {
		return w.faults.Rule(c)
	}
	var in struct{ ClientRequestToken string }
	_ = c.Read(&in) // the SDK has written it
	w.mu.Lock()
	defer w.mu.Unlock()
	first := w.commits[in.ClientRequestToken] == 0
	if first {
		w.commits[in.ClientRequestToken] = len(w.commits) + 1
	}
	tx := w.commits[in.ClientRequestToken]
	soon := time.Duration(20+tx*379%1500) * time.Millisecond
	switch {
	case tx%8 != 0:
		return w.faults.Rule(c)
	case !first:
		return faultnet.LoseRequest
	case tx%16 == 0:
		w.counts["no try answered, one arrives soon"]++
		return faultnet.LoseAndArrive(soon / 10)
	}
	w.counts["no try answered, one arrives when all is over"]++
	return faultnet.LoseAndArrive(soon + 5*time.Second)
}

// known is the provider's answer about a request.
func (w *world) known(rw http.ResponseWriter, req *http.Request) {
	n, begun := numberOf(req.FormValue("n")), time.Now()
	if w.chance(15) {
		fmt.Fprint(rw, -1)
		return
	}
	run := 0
	for _, e := range w.recorder.Effects() {
		if e.N == n && e.Token == "" {
			run = e.Run
		}
	}
	o := register.Operation{What: register.Probed, Value: run}
	if modeOf(n).steps { // its answer is about the step alone
		o.Value = register.Empty
	}
	w.note(n, begun, o)
	fmt.Fprint(rw, run)
}

// send takes a message for the queue, and now and again loses the call or its reply.
func (w *world) send(rw http.ResponseWriter, req *http.Request) {
	lose := w.n(100)
	if w.isCalm() {
		lose = 100
	}
	if lose < 5 {
		panic(http.ErrAbortHandler)
	}
	var n, run int
	_, _ = fmt.Sscan(req.FormValue("body"), &n, &run)
	w.mu.Lock()
	if w.messages[n] == nil {
		w.messages[n] = map[string]int{}
	}
	w.messages[n][req.FormValue("id")] = run
	w.counts["messages"]++
	if modeOf(n).later {
		w.queue = append(w.queue, n)
	}
	w.mu.Unlock()
	if lose < 10 {
		panic(http.ErrAbortHandler)
	}
}

// process is one of those that live, with its place; another one is started in place of one that was killed.
func (w *world) process() (*child.Server, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.random.IntN(processes)
	for w.frozen[i] {
		i = (i + 1) % processes
	}
	if p := w.workers[i]; p != nil {
		select {
		case <-p.Ended():
			w.counts["processes killed"]++
			_ = p.Close()
		default:
			return p, i
		}
	}
	own := w.config // and a clock of its own
	own.Skew = time.Duration(w.random.Int64N(int64(margin/2))) - margin/4
	value, err := json.Marshal(own)
	if err == nil {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), role+"="+string(value), "AWS_ACCESS_KEY_ID=idemlocal",
			"AWS_SECRET_ACCESS_KEY=idemlocal")
		w.workers[i], err = child.Serve(context.Background(), "worker", "", cmd, func(string, ...any) {})
	}
	if err != nil {
		w.t.Errorf("a process does not start: %v", err)
	}
	return w.workers[i], i
}

// ask has a process do something. It is lost if the process does not live to answer.
func (w *world) ask(do string, n int) register.Operation {
	w.late.Add(1)
	defer w.late.Done()
	p, i := w.process()
	begun := time.Now()
	call := locked(w, func() string { w.calls++; return strconv.Itoa(w.calls) })
	said, err := runs.Post(p.Endpoint()+"/"+do, url.Values{"n": {strconv.Itoa(n)}, "call": {call}})
	if locked(w, func() bool { return w.frozen[i] }) {
		w.tally("answers of frozen processes")
	}
	var o register.Operation
	if err == nil {
		err = json.Unmarshal([]byte(said), &o)
	}
	if err != nil {
		o = register.Operation{What: register.Lost, Why: err.Error()}
		for i, r := range w.recorder.Of(n) {
			if r.About.Get("call") == call {
				o.Value = i + 1
			}
		}
	}
	if do == "call" || do == "work" || do == "resolve" && o.What == register.Resolved {
		w.note(n, begun, o)
	}
	return o
}

// note adds to the history of a request.
func (w *world) note(n int, begun time.Time, o register.Operation) {
	w.history.Note(strconv.Itoa(n), begun, o)
	w.mu.Lock()
	defer w.mu.Unlock()
	if o.What == register.Parked {
		w.asked = n
	}
	w.ended[n] = w.ended[n] || ended(o)
}

// ended says that a caller got the outcome.
func ended(o register.Operation) bool { return o.What == register.Ran || o.What == register.Replayed }

// jump moves the world's clock.
func (w *world) jump(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ahead += d
	w.counts["jumps of the clock"]++
	if err := w.clock.set(w.ahead); err != nil {
		w.t.Error(err)
	}
}

// load has callers ask for all requests, each one to three times, while everything goes wrong.
func (w *world) load() {
	queue := rig.Sendings(w.random, w.requests, 3)
	done := make(chan struct{})
	var others sync.WaitGroup
	for range 3 {
		others.Go(func() {
			for w.t.Context().Err() == nil {
				w.deliver()
				select {
				case <-done:
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}
	var sent int
	rig.Crowd(w.t, queue, 24, 40*time.Minute, func(int) func(context.Context, int) error {
		return func(ctx context.Context, n int) error {
			for range 3 {
				o := w.ask("call", n)
				if ended(o) || modeOf(n).later && o.What == register.Nothing {
					break
				}
				if o.What == register.Parked && w.chance(50) { // its caller has somebody look
					w.ask("resolve", n)
				}
				<-time.After(time.Duration(w.n(100)) * time.Millisecond)
			}
			w.disturb(locked(w, func() int { sent++; return sent }), len(queue))
			return ctx.Err()
		}
	})
	close(done)
	others.Wait()
}

// every: so many sendings are between two disturbances at least.
const every = 30

// disturb is called by each sender after a sending. While one of them disturbs, the others go on.
func (w *world) disturb(sent, of int) {
	if w.isCalm() || !w.disturbing.TryLock() {
		return
	}
	defer w.disturbing.Unlock()
	if sent*4/min(of, 800) > locked(w, func() int { return w.counts["database killed"] }) {
		w.tally("database killed")
		if err := w.database.Kill(); err != nil {
			w.t.Errorf("kill the database: %v", err)
		}
	}
	if sent < w.disturbed+every {
		return
	}
	w.disturbed, w.disturbances = sent, w.disturbances+1
	switch w.disturbances % 4 {
	case 0:
		w.freeze()
	case 1:
		w.jump(-margin / 4)
		w.tally("database frozen")
		if err := w.database.Freeze(func() { <-time.After(time.Second) }); err != nil {
			w.t.Errorf("freeze the database: %v", err)
		}
	default:
		w.jump(w.config.Lease + margin + time.Second)
	}
	w.hidden = append(w.hidden, w.unlisted()...)
	w.sweep()
}

// freeze has one process stand still past its leases, while others sweep and take over, and go on.
func (w *world) freeze() {
	p, i := w.process()
	locked(w, func() bool { w.frozen[i] = true; return true })
	w.tally("processes frozen")
	if err := rig.Freeze(p.PID(), func() {
		w.jump(w.config.Lease + 2*margin)
		w.sweep()
		<-time.After(time.Duration(w.n(300)) * time.Millisecond)
	}); err != nil {
		w.t.Errorf("freeze process %d: %v", p.PID(), err)
	}
	// What it does now comes late.
	<-time.After(time.Duration(w.n(300)) * time.Millisecond)
	locked(w, func() bool { w.frozen[i] = false; return true })
}

// sweep has two processes sweep at the same time, an operator look at a question, and another one send messages.
func (w *world) sweep() {
	var all sync.WaitGroup
	for _, do := range []string{"sweep", "sweep", "relay", "resolve"} {
		all.Go(func() {
			w.tally(do)
			w.ask(do, locked(w, func() int { return w.asked }))
		})
	}
	all.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue, w.waiting = append(w.queue, w.waiting...), nil
}

// deliver works the queue off. A message comes again until its work has an outcome, and now and again after that.
func (w *world) deliver() {
	for {
		w.mu.Lock()
		if len(w.queue) == 0 {
			w.mu.Unlock()
			return
		}
		n := w.queue[0]
		w.queue = w.queue[1:]
		w.mu.Unlock()
		o := w.ask("work", n)
		if ended(o) {
			if !w.chance(10) {
				continue
			}
		}
		w.mu.Lock()
		w.waiting = append(w.waiting, n)
		w.mu.Unlock()
	}
}

// settle ends all faults, and has the sweep end what is open, before any caller comes again. It returns what the sweep
// does not find.
func (w *world) settle() (unseen []string) {
	w.attempts.Calm()
	w.outside.Calm()
	w.outside.Set(func(c *faultnet.Call) faultnet.Fault { w.watch(c); return nil })
	w.late.Wait()
	w.mu.Lock()
	w.calm, w.ended = true, map[int]bool{} // all callers come once more
	w.mu.Unlock()
	unseen = append(w.hidden, w.unlisted()...)
	for round := range 40 {
		w.jump(w.config.Lease + margin + 2*time.Minute)
		w.sweep()
		w.deliver()
		if open := w.questions(); len(open) > 0 && round < 30 {
			continue // until the sweep has ended them
		}
		var all []int
		for _, n := range w.requests {
			if !w.ended[n] {
				all = append(all, n)
			}
		}
		rig.Crowd(w.t, all, 24, 20*time.Minute, func(int) func(context.Context, int) error {
			return func(_ context.Context, n int) error { w.ask("call", n); return nil }
		})
		if len(all) == 0 && len(w.questions()) == 0 && w.undelivered() == 0 {
			return unseen
		}
		if w.undelivered() > 0 {
			time.Sleep(time.Second) // the relay waits for a try whose process is dead, and has no clock of its own
		}
	}
	for _, rec := range w.questions() {
		unseen = append(unseen, fmt.Sprintf("%s stays open: %+v", rec.ID, rec))
	}
	for _, n := range w.requests {
		if !w.ended[n] {
			unseen = append(unseen, fmt.Sprintf("%s %d has no outcome: %v", modeOf(n).op.Name, n, w.history.Of(strconv.Itoa(n))))
		}
	}
	return append(unseen, fmt.Sprintf("%d messages are left", w.undelivered()))
}

// unlisted are the open questions that are not in the index, or expire.
func (w *world) unlisted() (all []string) {
	for _, rec := range w.questions() {
		if rec.Due.IsZero() || !rec.ExpiresAt.IsZero() {
			all = append(all, fmt.Sprintf("%s is open, and no sweep finds it: %+v", rec.ID, rec))
		}
	}
	return all
}

// undelivered counts the messages that are in the outbox or have brought no worker.
func (w *world) undelivered() (count int) {
	for _, it := range w.scan(w.config.Records) {
		if strings.HasPrefix(rig.Text(it[schema.SK]), schema.OutboxSK) &&
			rig.Text(it[schema.State]) != schema.OutboxDispatched {
			count++
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return count + len(w.queue) + len(w.waiting)
}

// questions are the records that only a sweep or an operator can end: their calls do not run again by themselves.
func (w *world) questions() (all []*idem.Record) {
	for _, it := range w.scan(w.config.Records) {
		state := idem.State(rig.Text(it[schema.State]))
		if rig.Text(it[schema.SK]) != schema.RecordSK || state != idem.Unknown && state != idem.InProgress {
			continue
		}
		rec, err := w.store.Get(w.t.Context(), rig.Text(it[schema.PK]))
		require.NoError(w.t, err)
		if rec != nil && (rec.State == idem.Unknown ||
			rec.State == idem.InProgress && (rec.Repeat == idem.NotRepeatable || rec.Interrupted())) {
			all = append(all, rec)
		}
	}
	return all
}

func (w *world) scan(table string) []map[string]types.AttributeValue {
	return rig.ScanOver(w.t, w.db, table)
}

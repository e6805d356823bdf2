package questions

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
	"github.com/idem-go/idempotency/local/proof/faultnet"
	"github.com/idem-go/idempotency/local/proof/rig"
)

func TestMain(m *testing.M) { testmain.Run(m) }

func TestAnyScheduleHasOneOutcomeAndACompleteHistory(t *testing.T) {
	schedules := 60
	if rig.Long() {
		schedules = 400
	}
	var all tally
	var workers sync.WaitGroup
	seeds := make(chan uint64)
	for range 8 {
		workers.Go(func() {
			for seed := range seeds {
				done := make(chan struct{})
				go func() { // what fails ends its own schedule
					defer close(done)
					all.add(play(t, seed))
				}()
				<-done
			}
		})
	}
	for seed := range schedules {
		seeds <- uint64(seed)
	}
	close(seeds)
	workers.Wait()
	t.Logf("%d schedules: %v", schedules, all.counts)
	must := []string{"resolved", "forgotten", "run again", "completed", "reply lost", "request lost", "cut, arrives late"}
	if rig.Long() { // rare in a few
		must = append(must, "parked", "escalated", "resolved again", "failed", "conflict")
	}
	for _, what := range must {
		require.NotZero(t, all.counts[what], what)
	}
}

// tally counts what has occurred.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (a *tally) add(counts map[string]int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.counts == nil {
		a.counts = map[string]int{}
	}
	for what, n := range counts {
		a.counts[what] += n
	}
}

// play plays a schedule, lets the sweep end what is still open, and requires what must
// hold of it. It returns what has occurred.
func play(t *testing.T, seed uint64) map[string]int {
	s := newSchedule(t, rig.Table(t), seed)
	calm := s.calm()
	watched := s.watch(calm)
	wires := s.run()
	for _, w := range wires {
		w.settle()
	}
	watched()

	s.settle(calm)
	outcome := s.outcome()
	rec, err := calm.Lookup(t.Context(), s.key.ID())
	require.NoError(t, err)
	require.Contains(t, []idem.State{idem.Completed, idem.Failed}, rec.State, "seed %d", seed)
	counts := s.counts()
	counts[string(rec.State)]++
	if rec.Attempt > 1 {
		counts["run again"]++
	}
	require.LessOrEqual(t, s.effects, 1, "seed %d: it took effect twice", seed)
	if outcome == receipt {
		require.Equal(t, 1, s.effects, "seed %d: there is a receipt and no effect", seed)
	}
	for _, told := range s.answers {
		require.True(t, s.again || told == outcome, "seed %d: a client was told %q, and later %q", seed, told, outcome)
	}
	s.forget(calm)
	history, err := calm.History(t.Context(), s.key.ID())
	require.NoError(t, err)
	s.audited(history)
	for _, a := range history {
		counts[string(a.Change)]++
		if a.Change == protocol.ChangeResolved && a.From != idem.Unknown {
			counts["resolved again"]++
		}
	}
	return counts
}

// run has everybody do what they do at once. It returns when only dead processes are left.
func (s *schedule) run() (wires []*wire) {
	var parties sync.WaitGroup
	outside := func(do func(*reconcile.Reconciler)) {
		w := s.wire(true)
		wires = append(wires, w)
		r := s.reconciler(w)
		parties.Go(func() { do(r) })
	}
	// deliver returns when the call is over, or its process is in its handler and dead.
	deliver := func(p *process, f fate) (running, over chan struct{}) {
		running, over = make(chan struct{}), make(chan struct{})
		wires = append(wires, p.wire)
		go func() {
			defer close(over)
			s.call(p, f, running)
		}()
		return running, over
	}
	until := func(running, over chan struct{}, f fate) {
		if f > killedBefore {
			running = nil
		}
		select {
		case <-running:
		case <-over:
		}
	}
	first := fate(s.n(int(fates)))
	running, over := deliver(s.process(), first)
	select { // the others come while it is in its handler
	case <-running:
	case <-over:
	}
	parties.Go(func() { until(running, over, first) })
	for range 2 {
		outside(func(r *reconcile.Reconciler) {
			sw := s.sweeper(r, false)
			for range 5 {
				if _, err := sw.Sweep(context.Background()); err != nil {
					s.t.Errorf("seed %d: %v", s.seed, err)
				}
				s.pause(20)
			}
		})
		outside(s.webhook)
		outside(s.operator)
	}
	var calls []func()
	for range 4 {
		p, f := s.process(), none
		if s.n(5) == 0 {
			f = killedAfterEffect
		}
		calls = append(calls, func() {
			s.pause(80)
			running, over := deliver(p, f)
			until(running, over, f)
		})
	}
	parties.Go(func() { // a client tries again when it has its answer
		for _, call := range calls {
			call()
		}
	})
	parties.Go(func() {
		for range 12 {
			s.pause(15)
			s.advance(time.Duration(1+s.n(12)) * time.Second)
		}
	})
	parties.Wait()
	return wires
}

// watch reads the record all the time, and requires what holds in every state that it
// sees, until what it returns is called.
func (s *schedule) watch(r *reconcile.Reconciler) (end func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		var before *idem.Record
		for {
			rec, err := r.Lookup(context.Background(), s.key.ID())
			if err != nil {
				s.t.Errorf("seed %d: %v", s.seed, err)
				return
			}
			if why := s.wrong(before, rec); why != "" {
				s.t.Errorf("seed %d: %s:\n%+v\n%+v", s.seed, why, before, rec)
				return
			}
			before = rec
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// wrong says what does not hold of a record that was another one before.
func (s *schedule) wrong(before, rec *idem.Record) string {
	if rec == nil {
		if before != nil {
			return "the record is lost"
		}
		return ""
	}
	running := rec.State == idem.InProgress
	question := rec.Open() || running && (rec.Repeat == idem.NotRepeatable || rec.Interrupted())
	switch {
	case question && rec.Due.IsZero(), !question && !running && !rec.Due.IsZero():
		return "it is lost, or in the index for nothing"
	case !rec.Due.IsZero() && !rec.ExpiresAt.IsZero():
		return "an open question expires"
	case before == nil || before.State != idem.Completed && before.State != idem.Failed:
		return ""
	case before.Write != rec.Write && !before.Resolved:
		return "an attempt's outcome was replaced"
	case before.Write != rec.Write && !s.replaced():
		return "an answer was replaced, and nobody meant to"
	}
	return ""
}

func (s *schedule) replaced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.again
}

// settle ends what is still open: time goes on, and the sweep asks a provider that always
// answers. What was escalated, people answer.
func (s *schedule) settle(r *reconcile.Reconciler) {
	sw := s.sweeper(r, true)
	for range 40 {
		s.advance(2 * time.Minute) // in all more than the longest pause between two probes
		_, err := sw.Sweep(s.t.Context())
		require.NoError(s.t, err)
		rec, err := r.Lookup(s.t.Context(), s.key.ID())
		require.NoError(s.t, err)
		if rec == nil || rec.Due.IsZero() {
			return
		}
		if s.steps && rec.State != idem.Unknown { // the client's last call goes on with it
			require.False(s.t, rec.State == idem.InProgress && rec.Interrupted(), "seed %d: nobody has asked", s.seed)
			return
		}
		if !rec.EscalatedAt.IsZero() {
			s.people["told"]++
			res := reconcile.Resolution{To: idem.Released, Steps: absent(rec)}
			if s.known() {
				res = reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "refunded by hand"}}
			}
			s.alone(func() error {
				return r.Resolve(s.t.Context(), s.key.ID(), res, reconcile.Change{Actor: "bob", Reason: "the queue for people"})
			})
			return
		}
	}
	require.Fail(s.t, "it stays open", "seed %d", s.seed)
}

func (s *schedule) alone(do func() error) { require.NoError(s.t, do(), "seed %d", s.seed) }

// outcome is what the client's last call gets.
func (s *schedule) outcome() string {
	p := s.process()
	p.wire.calm.Store(true)
	s.call(p, none, nil)
	require.NotEmpty(s.t, s.answers, "seed %d: the last call got no outcome", s.seed)
	return s.answers[len(s.answers)-1]
}

// forget has two people forget the record at once.
func (s *schedule) forget(calm *reconcile.Reconciler) {
	var both sync.WaitGroup
	for _, who := range []string{"alice", "bob"} {
		w := s.wire(true)
		r := s.reconciler(w)
		both.Go(func() {
			if err := r.Forget(context.Background(), s.key.ID(),
				reconcile.Change{Actor: who, Reason: "a person's right"}); err != nil {
				s.t.Errorf("seed %d: %v", s.seed, err)
			}
			w.settle()
		})
	}
	both.Wait()
	rec, err := calm.Lookup(s.t.Context(), s.key.ID())
	require.NoError(s.t, err)
	require.Nil(s.t, rec, "seed %d", s.seed)
	left := rig.Scan(s.t, s.table)
	for _, it := range left {
		require.Contains(s.t, rig.Text(it["sk"]), "audit#", "seed %d: something else is left", s.seed)
	}
}

// audited requires one entry for each change from outside, and no other. Without transactions
// there may also be unconfirmed ones.
func (s *schedule) audited(history []protocol.Audit) {
	require.Empty(s.t, s.strange, "seed %d: changes without an entry", s.seed)
	var want, got []string
	for _, entry := range s.changes {
		want = append(want, entry[len(entry)-26:])
	}
	removed, confirmed := 0, 0
	var unconfirmed []string
	for _, a := range history {
		require.NotEmpty(s.t, a.Who)
		require.NotEmpty(s.t, a.Why)
		if s.noTx && a.Change == protocol.ChangeForgotten {
			removed++
			if !a.Unconfirmed {
				confirmed++
			}
			continue
		}
		if a.Unconfirmed {
			require.True(s.t, s.noTx)
			unconfirmed = append(unconfirmed, a.Entry)
			continue
		}
		got = append(got, a.Entry)
	}
	if s.noTx {
		require.NotZero(s.t, removed, "seed %d: a removal without an entry", s.seed)
		require.LessOrEqual(s.t, confirmed, 1, "seed %d: removed twice", s.seed)
	}
	// A change of an unconfirmed entry may have been made.
	want = slices.DeleteFunc(want, func(entry string) bool { return slices.Contains(unconfirmed, entry) })
	slices.Sort(want)
	slices.Sort(got)
	require.Equal(s.t, want, got, "seed %d", s.seed)
}

func (s *schedule) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := maps.Clone(s.faults)
	delete(counts, "")
	for _, n := range s.people {
		if n > 1 {
			counts["told people twice"]++
		}
	}
	return counts
}

// calm is a reconciler over a network without faults.
func (s *schedule) calm() *reconcile.Reconciler {
	w := s.wire(true)
	w.calm.Store(true)
	return s.reconciler(w)
}

// wire is a network of one party's own, which loses one call in a few, and notes what a
// party outside the attempts has changed.
type wire struct {
	*faultnet.Network
	client *dynamodb.Client
	dead   atomic.Bool
	calm   atomic.Bool // it loses nothing
	// entry is the key of the audit entry that the party has written as unconfirmed.
	entry atomic.Value
}

// kill ends the process: nothing that it sends arrives any more.
func (w *wire) kill() { w.dead.Store(true) }

// settle waits for what is late. The dead stay dead.
func (w *wire) settle() {
	w.Calm()
	w.Set(func(*faultnet.Call) faultnet.Fault {
		if w.dead.Load() {
			return faultnet.AccessDenied
		}
		return nil
	})
}

func (s *schedule) wire(outside bool) *wire {
	w := &wire{Network: faultnet.New()}
	w.entry.Store("")
	var err error
	w.client, err = dynamostore.NewClient(aws.Config{},
		&dynamostore.ClientOptions{Endpoint: dynamotest.Endpoint(s.t), Transport: w})
	require.NoError(s.t, err)
	w.Set(func(c *faultnet.Call) faultnet.Fault {
		if w.dead.Load() {
			return faultnet.AccessDenied // which nobody tries again
		}
		if outside {
			entry := w.planned(c)
			c.OnPass = func(r *faultnet.Reply) { s.note(c, r, entry) }
		}
		if w.calm.Load() {
			return nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		soon := time.Duration(s.rand.IntN(15)) * time.Millisecond
		name, fault := "", faultnet.Fault(nil)
		switch n := s.rand.IntN(100); {
		case n < 10:
			name, fault = "reply lost", faultnet.LoseReply
		case n < 16:
			name, fault = "request lost", faultnet.LoseRequest
		case n < 24:
			name, fault = "cut, arrives late", faultnet.LoseAndArrive(soon)
		case n < 28 && strings.HasPrefix(c.Operation, "Transact"):
			name, fault = "conflict", faultnet.Conflict
		case n < 50:
			return faultnet.Delay(soon / 5)
		}
		s.faults[name]++
		return fault
	})
	return w
}

// planned is the key of the unconfirmed entry of the change that the call is part of; empty if
// there is none.
func (w *wire) planned(c *faultnet.Call) string {
	var in struct {
		Item struct {
			SK          struct{ S string }   `json:"sk"`
			Unconfirmed *struct{ BOOL bool } `json:"unconfirmed"`
		}
	}
	if sk := &in.Item.SK; c.Read(&in) == nil && strings.HasPrefix(sk.S, "audit#") {
		entry := ""
		if in.Item.Unconfirmed != nil {
			entry = sk.S
		}
		w.entry.Store(entry)
	}
	return w.entry.Load().(string)
}

// note keeps what a party outside the attempts has changed. Without transactions planned is the
// change's entry.
func (s *schedule) note(c *faultnet.Call, r *faultnet.Reply, planned string) {
	if r.Status != http.StatusOK {
		return
	}
	var in struct {
		ClientRequestToken, UpdateExpression string
		Item, Key                            map[string]struct{ S string }
		TransactItems                        []struct {
			Put struct{ Item map[string]struct{ S string } }
		}
	}
	err := c.Read(&in)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.strange = append(s.strange, err.Error())
	case c.Operation == "TransactWriteItems" && len(in.TransactItems) == 2:
		s.changes[in.ClientRequestToken] = in.TransactItems[1].Put.Item["sk"].S
	case s.noTx && strings.HasPrefix(in.Item["sk"].S+in.Key["sk"].S, "audit#"): // planned, confirmed or deleted
	case s.noTx && c.Operation == "DeleteItem": // a removal: the record shows it
	case s.noTx && c.Operation == "UpdateItem" && planned != "":
		s.changes[planned] = planned
	case c.Operation == "UpdateItem" && strings.HasPrefix(in.UpdateExpression, "SET open_due"):
	case c.Operation == "GetItem", c.Operation == "Query":
	default:
		s.strange = append(s.strange, c.Operation+" "+string(c.Body))
	}
}

package idem_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/limit"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/secrets"
)

// Two processes at a time over one table, by the process's clock and so with a circuit, or by clocks
// that differ: limits, secrets, atomic mode, accepted work, TTL, deaths, and requests and replies
// that are lost, held for up to 15 minutes, or delivered twice.
func TestRandomHistoriesOfTwoProcesses(t *testing.T) {
	n := 300
	if os.Getenv("IDEM_LONG") != "" {
		n = 5000
	}
	bad, saw := 0, map[string]int{}
	for seed := 0; seed < n && bad < 3; seed++ {
		synctest.Test(t, func(t *testing.T) {
			if problems := together(t, uint64(seed), saw); len(problems) > 0 {
				bad++
				t.Errorf("seed %d: %s", seed, strings.Join(problems, "\n  "))
			}
		})
	}
	// A model in which no danger occurs shows nothing.
	for _, what := range []string{"told", "resolved", "unknown", "limit", "not committed", "died",
		"second run", "end: failed"} {
		require.Positive(t, saw[what], what)
	}
	t.Log(saw)
}

const togetherBound = 2 // keys in a minute, for each tenant and operation

type twoProcesses struct {
	t       *testing.T
	mem     *memstore.Store
	seed    uint64
	rate    int
	deaths  bool
	mu      sync.Mutex
	rnd     *rand.Rand
	calm    bool
	log     []string
	runs    int
	starts  map[string][]*historyRun
	ended   map[string]*idem.Record
	told    map[string]historyAnswer
	excused map[string]bool // an outcome was dropped, which was reported
	made    map[string]map[string]bool
	counted map[string]bool
	sent    map[string]time.Time
	ran     map[string]bool // secrets under which handlers ran
	saw     map[string]int
	bad     []string
	held    sync.WaitGroup
}

type historyRun struct {
	n        int
	p        *historyProcess
	over     bool
	harmless bool
	recorded bool // returned what is an outcome
	repeat   idem.Repeat
	ctx      context.Context // the handler's: once it has ended, another one may run
	unit     *historyUnit
}

// historyUnit is a unit of work of one run.
type historyUnit struct {
	id     string
	run    int
	never  bool // its caller was told that it is not committed
	landed int
}

func (u *historyUnit) Seal() bool                                 { return true }
func (u *historyUnit) Size() int                                  { return 1 }
func (u *historyUnit) CommitInMemory(func(any) (bool, any)) error { return nil }

type historyProcess struct {
	w      *twoProcesses
	n      int
	engine *idem.Engine
	store  *idemtest.Faults
	now    func() time.Time
	secret string
	ctx    context.Context
	cancel context.CancelFunc
	dead   bool
}

func (w *twoProcesses) roll(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rnd.IntN(n)
}

func (w *twoProcesses) note(f string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(f, a...))
}

func (w *twoProcesses) problem(f string, a ...any) { // the caller holds the lock
	if len(w.bad) < 3 {
		w.bad = append(w.bad, fmt.Sprintf(f, a...))
	}
}

// table looks at what lands.
type historyTable struct {
	*memstore.Store
	w *twoProcesses
}

func (c historyTable) Acquire(ctx context.Context, now time.Time, p protocol.Claim) error {
	err := c.Store.Acquire(ctx, now, p)
	if err == nil && (p.Seen == "" || p.Replace) {
		c.w.makes(p.Record.ID, p.Record.Owner, now)
	}
	c.w.look(p.Record.ID, "claim")
	return err
}

func (c historyTable) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	how, atomic := f.Attempt.(protocol.Atomic)
	at := now
	making := atomic && (how.Claim.Seen == "" || how.Claim.Replace)
	if making { // it was counted when it was sent first
		c.w.mu.Lock()
		if first, ok := c.w.sent[f.Owner]; ok {
			now = first
		} else {
			c.w.sent[f.Owner] = now
		}
		c.w.mu.Unlock()
	}
	before := len(c.Store.Units())
	err := c.Store.Finish(ctx, at, f)
	if err == nil && making {
		c.w.makes(f.ID, f.Owner, now)
	}
	if u, ok := f.Unit.(*historyUnit); ok && err == nil && len(c.Store.Units()) > before {
		c.w.mu.Lock()
		if u.landed++; u.landed > 1 {
			c.w.problem("%s: the unit of run %d commits twice", f.ID, u.run)
		}
		if u.never {
			c.w.problem("%s: the unit of run %d commits although its caller was told that it does not", f.ID, u.run)
		}
		c.w.mu.Unlock()
	}
	c.w.look(f.ID, "finish")
	return err
}

func (c historyTable) Withdraw(ctx context.Context, now time.Time, p protocol.Withdrawal) error {
	err := c.Store.Withdraw(ctx, now, p)
	c.w.look(p.Claim.Record.ID, "withdraw")
	return err
}

func (c historyTable) Settle(ctx context.Context, now time.Time, s protocol.Settlement) error {
	err := c.Store.Settle(ctx, now, s)
	c.w.look(s.ID, "settlement")
	return err
}

// makes counts the records that calls of one window make.
func (w *twoProcesses) makes(id, owner string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, op, _ := protocol.ParseRecordID(id)
	if op == "" || op == "wide" || op == "mixed" || w.counted[owner] {
		return
	}
	w.counted[owner] = true
	at := fmt.Sprint(id[:strings.LastIndexByte(id, '#')], now.Truncate(time.Minute).Unix())
	if w.made[at] == nil {
		w.made[at] = map[string]bool{}
	}
	w.made[at][owner] = true
	if len(w.made[at]) > togetherBound {
		w.problem("%s: more than %d records are made in a window", at, togetherBound)
	}
}

// look checks that an outcome never changes while it is kept.
func (w *twoProcesses) look(id, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rec, _ := w.mem.Get(context.Background(), id) // under the lock: two looks see the record in order
	if strings.HasSuffix(id, "#") {
		return
	}
	if first := w.ended[id]; first != nil && time.Now().Before(first.ExpiresAt) {
		if rec == nil || rec.State != first.State || rec.Write != first.Write && !first.Omitted {
			w.problem("%s: %s changes the outcome", id, what)
		}
		return
	}
	if rec != nil && (rec.State == idem.Completed || rec.State == idem.Failed) {
		if old := w.ended[id]; old == nil || old.Write != rec.Write {
			w.ended[id] = rec
		}
	}
	if rec != nil && (rec.Open() || rec.State == idem.InProgress && rec.Repeat == idem.NotRepeatable) &&
		!rec.ExpiresAt.IsZero() {
		w.problem("%s: %s leaves an open question in %s with an expiry", id, what, rec.State)
	}
}

// counting is the store with its counter, of which replies are lost too.
type historyBase struct {
	*idemtest.Faults
	p *historyProcess
}

func (b historyBase) CountKey(ctx context.Context, counter string, bound int, expires time.Time) (bool, error) {
	var counted atomic.Bool // a request may arrive again when its caller has the answer
	err := b.p.network(ctx, "CountKey", counter, func(ctx context.Context) error {
		now, err := b.p.w.mem.CountKey(ctx, counter, bound, expires)
		counted.Store(now)
		return err
	})
	return counted.Load(), err
}

func lost(op string) error {
	return &protocol.StoreError{Op: op, Ambiguous: true, Down: true, Err: errors.New("no reply")}
}

func (p *historyProcess) network(ctx context.Context, op, id string, call func(context.Context) error) error {
	w := p.w
	w.mu.Lock()
	dead, calm, x := p.dead, w.calm, w.rnd.IntN(w.rate)
	w.mu.Unlock()
	do := func() error { return call(context.WithoutCancel(ctx)) }
	hold := func() {
		delay := time.Duration(w.roll(900_000)) * time.Millisecond
		w.held.Go(func() {
			time.Sleep(delay)
			err := do()
			if op != "Get" {
				w.note("  p%d %s %s delivered late: %v", p.n, op, id, err)
			}
		})
	}
	if dead {
		return &protocol.ConflictError{}
	}
	if calm || ctx.Err() != nil {
		return call(ctx)
	}
	switch x {
	case 0, 1:
		err := do()
		w.note("  p%d %s %s reply lost: %v", p.n, op, id, err)
		return lost(op)
	case 2:
		w.note("  p%d %s %s request lost", p.n, op, id)
		return lost(op)
	case 3, 4:
		w.note("  p%d %s %s held", p.n, op, id)
		hold()
		return lost(op)
	case 5:
		err := do()
		w.note("  p%d %s %s twice: %v", p.n, op, id, err)
		hold()
		return err
	case 6:
		return &protocol.StoreError{Op: op, Down: true, Err: errors.New("refused")}
	case 7:
		w.note("  p%d %s %s hole", p.n, op, id)
		if _, ok := ctx.Deadline(); !ok {
			time.Sleep(5 * time.Second)
			return lost(op)
		}
		<-ctx.Done()
		return &protocol.StoreError{Op: op, Ambiguous: true, Down: true, Err: context.Cause(ctx)}
	case 8:
		if op == "Acquire" || op == "Finish" || op == "Settle" {
			return &protocol.ConflictError{}
		}
	case 9:
		if op != "CountKey" && op != "Withdraw" {
			return fmt.Errorf("%w: a fault", protocol.ErrRecordUnreadable)
		}
	case 10:
		time.Sleep(time.Duration(w.roll(400)) * time.Millisecond)
	case 11:
		if w.deaths && w.roll(4) == 0 {
			if w.roll(2) == 0 {
				_ = do()
			}
			p.die()
			return &protocol.ConflictError{}
		}
	}
	err := do()
	return err
}

func (p *historyProcess) die() {
	p.w.mu.Lock()
	p.dead = true
	p.w.saw["died"]++
	p.w.mu.Unlock()
	p.w.note("p%d dies", p.n)
	p.cancel()
}

func (p *historyProcess) died() bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.dead
}

var historySecrets = map[string][]byte{"a": []byte("a: 0123456789abcdef0123456789abcdef"),
	"b": []byte("b: 0123456789abcdef0123456789abcdef")}

func (w *twoProcesses) boot(n int, secret string) *historyProcess {
	p := &historyProcess{w: w, n: n, secret: secret}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	f := idemtest.NewFaults(historyTable{w.mem, w})
	f.Always(func(ctx context.Context, c *idemtest.Call) error { return p.network(ctx, string(c.Method), c.ID, c.Do) })
	minute := limit.PerTenant{Keys: togetherBound, Window: time.Minute}
	s, err := limit.Over(historyBase{f, p},
		map[string]limit.PerTenant{"strict": minute, "loose": minute, "atomic": minute, "job": minute})
	require.NoError(w.t, err)
	o := &idem.Options{Observer: func(_ context.Context, n notice.Notice) {
		if n.Kind == notice.OutcomeDropped || n.Kind == notice.Unreadable || n.Kind == notice.LeaseLost {
			w.mu.Lock()
			w.excused[n.ID] = true
			w.mu.Unlock()
		}
		w.note("    p%d tells %s %s %v", p.n, n.Kind, n.ID, n.Err)
	}}
	if w.seed%2 == 0 {
		skew := time.Duration(w.roll(1600)-800) * time.Millisecond
		o.Now = func() time.Time { return time.Now().Add(skew) }
	}
	if w.roll(3) == 0 {
		o.Wait = 10 * time.Second
	}
	p.store, p.now = f, o.Now
	p.engine, err = idem.New(s, o)
	require.NoError(w.t, err)
	return p
}

func (p *historyProcess) op(name string) idem.Operation {
	op := idem.Operation{Name: name, Retention: 24 * time.Hour}
	if p.w.seed%3 == 0 && name != "mixed" { // what a repeatable attempt has left must not expire there
		op.Retention = 90 * time.Minute
	}
	switch name {
	case "loose", "wide":
		op.Repeat = idem.Repeatable
	case "mixed": // two deployments, one of which is stricter
		op.Repeat = idem.Repeat(p.n % 2)
	case "atomic":
		op.Repeat, op.Mode = idem.Repeatable, idem.Atomic
	}
	if p.secret != "" {
		op.Values = secrets.New(historySecrets[p.secret])
	}
	return op
}

func (p *historyProcess) handler(key idem.Key, unit bool, mine **historyRun) func(context.Context,
	string) (string, error) {
	w, id := p.w, key.ID()
	name := key.Operation().Name
	return func(ctx context.Context, in string) (string, error) {
		w.mu.Lock()
		w.runs++
		r := &historyRun{n: w.runs, p: p, repeat: key.Operation().Repeat, ctx: ctx}
		*mine = r
		value := fmt.Sprintf("%s %s %s by run %d", key.Tenant(), name, in, r.n)
		w.saw["runs of "+name]++
		if p.secret != "" {
			other := map[string]string{"a": "b", "b": "a"}[p.secret]
			if w.ran[name+p.secret] = true; w.ran[name+other] {
				w.problem("handlers of %s run under two secrets", name)
			}
		}
		if old := w.ended[id]; old != nil && name != "atomic" {
			if time.Now().Add(time.Second).Before(old.ExpiresAt) && !p.dead {
				w.problem("%s: run %d begins over an outcome that is kept", id, r.n)
			}
			w.starts[id] = nil
			delete(w.ended, id)
			delete(w.told, id)
		}
		for _, before := range w.starts[id] {
			if !before.harmless && name != "atomic" {
				w.saw["second run"]++
			}
			switch {
			case p.dead || name == "atomic":
			case !before.over && !before.p.dead && before.ctx.Err() == nil:
				w.problem("%s: runs %d and %d are side by side", id, before.n, r.n)
			case min(r.repeat, before.repeat) == idem.NotRepeatable && !before.harmless:
				w.problem("%s: run %d follows the uncertain run %d", id, r.n, before.n)
			case before.recorded && before.p == p && !before.p.dead && !w.excused[id]:
				w.problem("%s: run %d follows run %d, whose outcome its process knows", id, r.n, before.n)
			}
		}
		w.starts[id] = append(w.starts[id], r)
		calm := w.calm
		w.mu.Unlock()
		w.note("p%d runs %s as %d", p.n, id, r.n)
		end := func(harmless, recorded bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			r.over = true
			r.harmless, r.recorded = harmless && !p.dead, recorded && !p.dead
			w.log = append(w.log, fmt.Sprintf("%s p%d run %d ends, harmless %v, recorded %v", time.Now().Format("15:04:05.000"),
				p.n, r.n, r.harmless, r.recorded))
		}
		if unit {
			_, err := idem.UnitOf(ctx, func() idem.Unit { r.unit = &historyUnit{id: id, run: r.n}; return r.unit })
			require.NoError(w.t, err)
		}
		if calm {
			end(false, true)
			return value, nil
		}
		if w.roll(2) == 0 {
			longest := []int{8000, 8000, 60_000}[w.roll(3)]
			time.Sleep(time.Duration(w.roll(longest)) * time.Millisecond)
		}
		switch w.roll(10) {
		case 0:
			end(false, false)
			return "", errPlain
		case 1:
			end(false, true)
			return "", idem.Permanent(errors.New(value))
		case 2, 3:
			end(true, false)
			return "", idem.NotExecuted(errPlain)
		case 4:
			end(false, false)
			panic(value)
		}
		end(false, true)
		return value, nil
	}
}

func (p *historyProcess) call(name, tenant, value, in string) (err error) {
	w := p.w
	ctx := p.ctx
	key := p.op(name).Key(tenant, value)
	if !w.calmNow() && w.roll(2) == 0 {
		ctx = idem.WithKillTime(ctx, time.Now().Add(40*time.Second))
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	var mine *historyRun
	h := p.handler(key, name == "atomic", &mine)
	var res idem.Result[string]
	before, _ := w.mem.Get(context.Background(), key.ID())
	switch {
	case name == "job" && in == "work":
		res, err = later.Work(ctx, p.engine, p.op(name), key.ID(), h)
	case name == "job":
		res, err = later.Accept[string](ctx, p.engine, key, in, func(ctx context.Context, id string) error { return nil })
	default:
		res, err = idem.Run(ctx, p.engine, key, in, h)
	}
	w.note("p%d %s %s: %q %v %s queued %v executed %v", p.n, key.ID(), in, res.Value, err, res.Outcome.RecordState,
		res.Outcome.Queued, res.Outcome.Executed)
	if p.died() {
		return err
	}
	after, _ := w.mem.Get(context.Background(), key.ID())
	w.mu.Lock()
	defer w.mu.Unlock()
	if flight, ok := errors.AsType[*idem.InFlightError](err); ok && !flight.Lost && before != nil && after != nil &&
		after.Write == before.Write &&
		(after.State == idem.Completed || after.State == idem.Failed) && in != "work" {
		w.problem("%s: a caller is told that it is in flight, and it is %s", key.ID(), after.State)
	}
	if ce, ok := errors.AsType[*idem.CommitError](err); ok && name == "atomic" {
		w.saw["not committed"]++
		if mine != nil && mine.unit != nil && !ce.Ambiguous {
			mine.unit.never = true
			if mine.unit.landed > 0 {
				w.problem("%s: the unit of run %d has committed, and its caller is told that it has not", key.ID(), mine.n)
			}
		}
	}
	if errors.Is(err, idem.ErrLimitExceeded) {
		w.saw["limit"]++
	}
	if res.Outcome.RecordState == idem.Completed && !res.Outcome.Queued && err == nil {
		w.hears(key, in, res.Value, res.Outcome.ExpiresAt)
	}
	if rec, ok := errors.AsType[*idem.RecordedError](err); ok && !res.Outcome.Queued {
		w.hears(key, in, rec.Message, res.Outcome.ExpiresAt)
	}
	return err
}

// resolves completes what is unknown, as an operator does.
func (p *historyProcess) resolves() {
	for _, rec := range p.w.mem.Records() {
		if _, name, _ := protocol.ParseRecordID(rec.ID); rec.State == idem.Unknown && name != "job" {
			p.resolve(p.op(name).KeyFromID(rec.ID))
		}
	}
}

func (p *historyProcess) resolve(key idem.Key) {
	const value = "by a resolver"
	rc, err := reconcile.New(p.store, &reconcile.Options{Now: p.now})
	require.NoError(p.w.t, err)
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	err = reconcile.Resolve(ctx, rc, key, value, reconcile.Change{Actor: "alice", Reason: "the provider says so"})
	p.w.note("p%d resolves %s: %v", p.n, key.ID(), err)
	if err != nil || p.died() {
		return
	}
	rec, _ := p.w.mem.Get(context.Background(), key.ID())
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.saw["resolved"]++
	if rec != nil {
		p.w.hears(key, "work", value, rec.ExpiresAt)
	}
}

func (w *twoProcesses) calmNow() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calm
}

func (w *twoProcesses) hears(key idem.Key, in, what string, until time.Time) {
	id, name := key.ID(), key.Operation().Name
	w.saw["told"]++
	if in != "work" && what != "by a resolver" && !strings.HasPrefix(what, key.Tenant()+" "+name+" "+in+" ") {
		w.problem("%s: a caller with %s was told %q", id, in, what)
	}
	if before, ok := w.told[id]; ok && before.what != what && time.Now().Before(before.until) {
		w.problem("%s: one caller was told %q, another %q", id, before.what, what)
	}
	w.told[id] = historyAnswer{what, until.Add(-time.Second)}
}

// historyAnswer is what a caller was told, and until when that is replayed.
type historyAnswer struct {
	what  string
	until time.Time
}

func together(t *testing.T, seed uint64, saw map[string]int) []string {
	w := &twoProcesses{t: t, mem: memstore.New(), seed: seed, rnd: rand.New(rand.NewPCG(seed, 7)),
		starts: map[string][]*historyRun{},
		ended:  map[string]*idem.Record{}, told: map[string]historyAnswer{}, excused: map[string]bool{},
		made:    map[string]map[string]bool{},
		counted: map[string]bool{}, sent: map[string]time.Time{}, ran: map[string]bool{}, saw: saw}
	w.rate, w.deaths = []int{25, 50, 120}[w.roll(3)], seed%4 < 2
	secret := []string{"", "a"}[w.roll(2)]
	names := []string{"strict", "loose", "wide", "mixed", "atomic", "job"}
	var n int
	var procs []*historyProcess
	for range 2 {
		s := secret
		if s != "" && w.roll(6) == 0 {
			s = "b"
		}
		procs = append(procs, w.boot(n, s))
		n++
	}
	over := make(chan struct{})
	go func() { // TTL
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Duration(1000+w.roll(60_000)) * time.Millisecond):
			}
			for _, rec := range w.mem.Records() {
				if !rec.ExpiresAt.IsZero() && rec.ExpiresAt.Before(time.Now()) && w.roll(2) == 0 {
					w.mem.Delete(rec.ID)
					w.note("  TTL deletes %s %s", rec.State, rec.ID)
				}
			}
		}
	}()
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range 8 {
				w.mu.Lock()
				i := w.rnd.IntN(len(procs))
				p := procs[i]
				if p.dead {
					p = nil
				}
				w.mu.Unlock()
				if p == nil {
					s := secret
					next := w.boot(0, s)
					w.mu.Lock()
					next.n = n
					n++
					procs[i], p = next, next
					w.mu.Unlock()
				}
				name := names[w.roll(len(names))]
				in := []string{"x", "x", "x", "y"}[w.roll(4)]
				if name == "job" && w.roll(2) == 0 {
					in = "work"
				}
				err := p.call(name, fmt.Sprint("t", w.roll(2)), fmt.Sprint("k", w.roll(4)), in)
				if err == nil || w.roll(2) == 0 {
					time.Sleep(time.Duration(w.roll(15_000)) * time.Millisecond)
				}
				switch w.roll(24) {
				case 0:
					time.Sleep(time.Duration(20+w.roll(80)) * time.Minute)
				case 1, 2:
					time.Sleep(time.Duration(30+w.roll(30)) * time.Second)
				case 3, 4, 5:
					p.resolves()
				}
			}
		})
	}
	clients.Wait()
	w.note("--- quiet")
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	for _, p := range procs {
		_ = p.engine.Flush(context.Background())
	}
	time.Sleep(20 * time.Minute)
	w.held.Wait()
	for _, p := range procs {
		_ = p.engine.Flush(context.Background())
	}
	last := w.boot(99, "")
	for _, name := range names {
		last.secret = secret
		if check, _ := w.mem.Get(context.Background(), "#"+name+"#"); check != nil && secret != "" {
			last.secret = ""
			for s := range historySecrets {
				if check.Fingerprint == protocol.FingerprintOf(secrets.New(historySecrets[s]).Digest("idem check\x00#"+name+"#")) {
					last.secret = s
				}
			}
			require.NotEmpty(w.t, last.secret)
		}
		for _, tenant := range []string{"t0", "t1"} {
			for _, value := range []string{"k0", "k1"} {
				w.end(last, name, tenant, value)
			}
		}
	}
	close(over)
	for _, p := range procs {
		p.die()
	}
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.bad) > 0 {
		return append(w.bad, w.log...)
	}
	return nil
}

// end checks that the key is not stuck.
func (w *twoProcesses) end(last *historyProcess, name, tenant, value string) {
	id := last.op(name).Key(tenant, value).ID()
	in := "x"
	var err error
	for range 3 {
		time.Sleep(time.Minute)
		if name == "job" {
			_ = last.call(name, tenant, value, in)
			err = last.call(name, tenant, value, "work")
		} else {
			err = last.call(name, tenant, value, in)
		}
		if errors.Is(err, idem.ErrKeyReused) {
			in = "y"
			continue
		}
		if !errors.Is(err, idem.ErrLimitExceeded) {
			break
		}
	}
	rec, _ := w.mem.Get(context.Background(), id)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case rec == nil:
		w.problem("%s: there is no record at the end: %v", id, err)
		return
	case rec.State == idem.Completed || rec.State == idem.Failed:
	case rec.State == idem.Unknown:
		w.saw["unknown"]++
		if w.excused[id] {
			return
		}
		for _, r := range w.starts[id] {
			if !r.harmless && !r.recorded {
				return // it is not known
			}
		}
		if w.deaths {
			return
		}
		w.problem("%s: unknown, although no run was uncertain: %v", id, err)
	default:
		w.problem("%s: stuck in %s: %v", id, rec.State, err)
	}
	w.saw["end: "+string(rec.State)]++
	// The units of the key that have committed.
	if name == "atomic" {
		n := 0
		for _, u := range w.mem.Units() {
			if u.(*historyUnit).id == id {
				n++
			}
		}
		if n > 1 && w.seed%3 != 0 {
			w.problem("%s: %d units have committed", id, n)
		}
	}
}

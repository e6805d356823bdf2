package limit_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/limit"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/local/aws/dynamodblocal/dynamotest"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// table is a store with places, and what lists its records.
type table interface {
	protocol.Store
	protocol.Places
}

// stores are the stores that keep places.
var stores = map[string]func(t *testing.T) (table, func() []*protocol.Record){
	"memstore": func(*testing.T) (table, func() []*protocol.Record) {
		s := memstore.New()
		return s, s.Records
	},
	"dynamostore": func(t *testing.T) (table, func() []*protocol.Record) {
		admin := dynamotest.Client(t)
		name := "limit-" + rand.Text()
		require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.WithoutStream{Client: admin}, name))
		client, err := dynamostore.NewClient(aws.Config{}, &dynamostore.ClientOptions{Endpoint: dynamotest.Endpoint(t)})
		require.NoError(t, err)
		patient := &dynamostore.Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute}
		s, err := dynamostore.New(client, name, patient)
		require.NoError(t, err)
		scanner, err := dynamostore.NewScanner(admin, name, patient)
		require.NoError(t, err)
		return s, func() (all []*protocol.Record) {
			for page := ""; ; {
				p, err := scanner.Scan(context.Background(), protocol.ScanQuery{Segments: 1, Page: page})
				if err != nil {
					panic(err)
				}
				all = append(all, p.Records...)
				if page = p.Next; page == "" {
					return all
				}
			}
		}
	},
}

// open counts the records that are open.
func open(all []*protocol.Record) (n int) {
	for _, rec := range all {
		switch rec.State {
		case idem.InProgress, idem.Unknown, idem.Pending:
			n++
		}
	}
	return n
}

// rig is a table that several processes share, with one clock. Whatever they write, no more records
// are open than the limit says.
type rig struct {
	t     *testing.T
	table *memstore.Store
	clock *idemtest.Clock
	bound int
	mu    sync.Mutex
	most  int
}

func newRig(t *testing.T, bound int) *rig {
	r := &rig{t: t, table: memstore.New(), clock: new(idemtest.Clock), bound: bound}
	t.Cleanup(func() { require.LessOrEqual(t, r.peak(), bound, "records open at once") })
	return r
}

// process is one of them: its engine and the faults of its store.
type process struct {
	*rig
	faults *idemtest.Faults
	engine *idem.Engine
	mu     sync.Mutex
	kinds  []notice.Kind
}

func (r *rig) process() *process {
	p := &process{rig: r, faults: idemtest.NewFaults(counted{r.table, r})}
	var err error
	p.engine, err = idem.New(p.faults, &idem.Options{Now: r.clock.Now, ClaimBudget: 10 * time.Second, FinishBudget: time.Second,
		Observer: func(_ context.Context, n notice.Notice) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.kinds = append(p.kinds, n.Kind)
		}})
	require.NoError(r.t, err)
	return p
}

// counted looks after each write how many records are open.
type counted struct {
	*memstore.Store
	r *rig
}

func (c counted) look(err error) error {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.most = max(c.r.most, open(c.Records()))
	return err
}

// peak is how many were open at once, at most.
func (r *rig) peak() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most
}

func (c counted) Acquire(ctx context.Context, now time.Time, w protocol.Claim) error {
	return c.look(c.Store.Acquire(ctx, now, w))
}

func (c counted) Withdraw(ctx context.Context, now time.Time, w protocol.Withdrawal) error {
	return c.look(c.Store.Withdraw(ctx, now, w))
}

func (c counted) Finish(ctx context.Context, now time.Time, w protocol.Finish) error {
	return c.look(c.Store.Finish(ctx, now, w))
}

func (c counted) Settle(ctx context.Context, now time.Time, w protocol.Settlement) error {
	return c.look(c.Store.Settle(ctx, now, w))
}

// of is a repeatable operation with the bound, or one that is not repeatable.
func (r *rig) of(repeat idem.Repeat) idem.Operation {
	return idem.Operation{Name: "export", Repeat: repeat, Limit: limit.PerTenant{Open: r.bound}}
}

func (p *process) do(op idem.Operation, value string, fn func(context.Context) error) error {
	_, err := idem.Do(context.Background(), p.engine, op.Key("acme", value), value, func(ctx context.Context, _ string) (string, error) {
		if fn == nil {
			return "done", nil
		}
		return "done", fn(ctx)
	})
	return err
}

// later tries a call until it runs, with two seconds between tries, at most so often.
func (p *process) later(op idem.Operation, value string, tries int) error {
	var err error
	for range tries {
		if err = p.do(op, value, nil); err == nil {
			return nil
		}
		p.clock.Advance(2 * time.Second)
	}
	return cmp.Or(err, error(nil))
}

func (r *rig) state(op idem.Operation, value string) idem.State {
	rec, err := r.table.Get(context.Background(), op.Key("acme", value).ID())
	require.NoError(r.t, err)
	if rec == nil {
		return idem.Absent
	}
	return rec.State
}

// free reports whether a place is free, by taking one and giving it back.
func (r *rig) free(op idem.Operation) bool {
	id := op.Key("acme", "probe").ID()
	err := r.table.TakePlace(context.Background(), r.clock.Now(), protocol.PlaceTaking{ID: id, Attempt: 1, MaxOpen: r.bound})
	if err != nil {
		return false
	}
	require.NoError(r.t, r.table.ReturnPlace(context.Background(), r.clock.Now(), protocol.PlaceReturn{ID: id, Attempt: 1}))
	return true
}

package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/local/proof/rig"
)

// desk is where a request is accepted, handed over and worked off.
type desk struct {
	*setup
	input   string
	enqueue later.EnqueueFunc
	// over hands what is committed over to the queue.
	over func(context.Context, *process, *queue) error
}

// queue has the messages, until they are acknowledged.
type queue struct{ ids []string }

// acceptedResult is what became of a cell.
type acceptedResult struct {
	state idem.State
	runs  int
	calls [][]string
}

// playAccepted sends the request, hands it over and has a worker come, again and again until there is an end, the
// first times with a fault each. It holds the end to what must be true of every cell.
func playAccepted(t *testing.T, d *desk, repeat idem.Repeat, faults ...fault) (out acceptedResult) {
	t.Helper()
	w := &business{runs: map[string]int{}, recorded: map[string]bool{}, dead: func() bool { return false }}
	op := idem.Operation{Name: "statement", Repeat: repeat}
	key := op.Key("acme", d.order)
	look := d.store(&process{w: w})
	observer, err := idem.New(look, &d.opts)
	require.NoError(t, err)
	q, ids := &queue{}, map[string]bool{} // by their 202s
	var p *process
	round := func(f fault) {
		p = d.alive(t, p, w)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p.deliver(f, cancel)
		got, err := later.Accept[string](ctx, p.engine, key, d.input, d.enqueue)
		if err == nil && got.Outcome.StatusID != "" && !p.isDead() {
			ids[got.Outcome.StatusID] = true
		}
		if !p.isDead() {
			_ = d.over(ctx, p, q) // the next round hands over what this one could not
		}
		for _, id := range slices.Clone(q.ids) {
			rec, err := look.Get(t.Context(), id)
			require.NoError(t, err)
			require.True(t, rec != nil && rec.Ticket != "", "a message without a record")
			if p.isDead() {
				break
			}
			_, err = later.Work(ctx, p.engine, op, id, func(_ context.Context, in string) (string, error) {
				require.Equal(t, d.input, in)
				return w.effect("print")
			})
			if err == nil && !p.isDead() {
				q.ids = slices.DeleteFunc(q.ids, func(i string) bool { return i == id })
			}
		}
		p.mu.Lock()
		out.calls = append(out.calls, p.calls)
		p.mu.Unlock()
		d.pass()
	}
	record := func() *idem.Record {
		rec, err := look.Get(t.Context(), key.ID())
		require.NoError(t, err)
		noticed(t, rec, w.counts()["print"] > 0)
		require.LessOrEqual(t, len(ids), 1, "one acceptance")
		for id := range ids {
			require.NotNil(t, rec, "a 202 without a record")
			_, err := later.StatusOf(t.Context(), observer, op, "acme", id)
			require.NoError(t, err)
		}
		if rec != nil && rec.Accepted() && rec.State != idem.Unknown {
			got, err := later.Accept[string](t.Context(), observer, key, d.input, d.enqueue)
			require.NoError(t, err)
			require.True(t, len(ids) == 0 || ids[got.Outcome.StatusID], "the same request has the same answer")
		}
		return rec
	}
	var rec *idem.Record
	for n := range most {
		f := fault{}
		if n < len(faults) {
			f = faults[n]
		}
		round(f)
		rec = record()
		if rec != nil && (rec.State == idem.Completed || rec.State == idem.Unknown) {
			break
		}
	}
	require.NotNil(t, rec)
	round(fault{})
	require.NoError(t, p.engine.Flush(t.Context()))
	out.state, out.runs = record().State, w.counts()["print"]
	require.Equal(t, rec.State, out.state, "it stays as it ended, after %q", out.calls)
	require.Empty(t, w.wrong)
	rows, err := d.rows(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{key.ID()}, rows, "one message is committed")
	require.True(t, repeat == idem.Repeatable || out.runs <= 1, "it ran %d times", out.runs)
	switch out.state {
	case idem.Completed:
		require.Positive(t, out.runs)
		got, err := later.Accept[string](t.Context(), observer, key, d.input, d.enqueue)
		require.NoError(t, err)
		require.Equal(t, "print", got.Value)
	default:
		require.Equal(t, idem.Unknown, out.state, "after %q", out.calls)
	}
	return out
}

// mustParkAccepted is the rule: only what died between its worker's claim and its outcome.
func mustParkAccepted(repeat idem.Repeat, label string, k kind) bool {
	return repeat == idem.NotRepeatable &&
		(label == "claim" && k == killAfter || label == "end as completed" && k == killBefore)
}

func acceptedInMemory() *desk {
	m := &memory{Store: memstore.New()}
	return &desk{
		setup: &setup{
			order: "june", store: func(*process) idem.Store { return m }, rows: m.stored,
			pass: func() { time.Sleep(time.Minute) },
		},
		input: "june", enqueue: func(ctx context.Context, id string) error { return putInMemory(ctx, id) },
		over: func(ctx context.Context, p *process, q *queue) error {
			rows, err := m.stored(ctx)
			for _, id := range rows {
				if err == nil {
					err = p.call("send the message", func() error { q.ids = append(q.ids, id); return nil })
				}
			}
			return err
		},
	}
}

// accepted plays every cell of the matrix, and returns it as text.
func accepted(t *testing.T, name string, newDesk func(*testing.T) *desk, repeat idem.Repeat,
	play func(t *testing.T, name string, f func(*testing.T))) string {
	var calls []string
	play(t, name+"/"+string(repeat), func(t *testing.T) {
		whole := playAccepted(t, newDesk(t), repeat)
		require.Equal(t, idem.Completed, whole.state)
		require.Equal(t, 1, whole.runs)
		calls = whole.calls[0]
	})
	tb := table{sc: scenario{name: name}, repeat: repeat}
	for n, label := range calls {
		l := line{label: label}
		for _, k := range kinds {
			play(t, fmt.Sprintf("%s/%s/%d %s/%s", name, repeat, n+1, label, k), func(t *testing.T) {
				got := playAccepted(t, newDesk(t), repeat, fault{n + 1, k})
				want := idem.Completed
				if mustParkAccepted(repeat, label, k) {
					want = idem.Unknown
				}
				require.Equal(t, want, got.state, "%q", got.calls)
				text := string(got.state)
				if got.runs != 1 {
					text += fmt.Sprintf("; printed %d times", got.runs)
				}
				l.cells = append(l.cells, text)
			})
		}
		tb.lines = append(tb.lines, l)
	}
	return tb.text(kinds)
}

func inBubble(t *testing.T, name string, f func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// TestAccepted plays what is accepted for later in process: dying before and after each call of the acceptance, the
// handing over, the claim and the outcome, and with each request and each reply lost.
func TestAccepted(t *testing.T) {
	var golden strings.Builder
	for _, repeat := range []idem.Repeat{idem.Repeatable, idem.NotRepeatable} {
		golden.WriteString(accepted(t, "statement", func(*testing.T) *desk { return acceptedInMemory() }, repeat, inBubble))
	}
	compare(t, "testdata/accepted.golden", golden.String())
}

// TestAcceptedWithTwoCrashes plays every pair of faults, the second one anywhere on the way back from the first.
func TestAcceptedWithTwoCrashes(t *testing.T) {
	cells := 0
	for _, repeat := range []idem.Repeat{idem.Repeatable, idem.NotRepeatable} {
		synctest.Test(t, func(t *testing.T) {
			cells += pairs(func(faults ...fault) [][]string {
				got := playAccepted(t, acceptedInMemory(), repeat, faults...)
				require.True(t, got.state == idem.Completed || repeat == idem.NotRepeatable, "%q", got.calls)
				return got.calls
			})
		})
	}
	require.Greater(t, cells, 500)
}

// desk is a request of its own on the table, with an outbox and a relay.
func (g *database) desk(t *testing.T, input string) *desk {
	s := g.setup(t)
	of := func(ctx context.Context) (refs []outbox.Ref, rows []string) {
		for _, it := range rig.Scan(t, g.table) {
			id := rig.Text(it[schema.PK])
			if name, ok := strings.CutPrefix(rig.Text(it[schema.SK]), schema.OutboxSK); ok &&
				id == (idem.Operation{Name: "statement"}).Key("acme", s.order).ID() {
				refs, rows = append(refs, outbox.Ref{Record: id, ID: name}), append(rows, id)
			}
		}
		return refs, rows
	}
	s.rows = func(ctx context.Context) ([]string, error) { _, rows := of(ctx); return rows, nil }
	return &desk{setup: s, input: input,
		enqueue: func(ctx context.Context, id string) error {
			dynamostore.TxOf(ctx).Publish("work", outbox.Message{Destination: "work", Body: []byte(id)})
			return nil
		},
		over: func(ctx context.Context, p *process, q *queue) error {
			client, err := dynamostore.NewClient(aws.Config{},
				&dynamostore.ClientOptions{Endpoint: g.endpoint, Transport: networkOf(p)})
			if err != nil {
				return err
			}
			store, err := dynamostore.NewOutbox(client, g.table, nil)
			if err != nil {
				return err
			}
			relay, err := outbox.NewRelay(store, map[string]outbox.Sender{"work": &carrier{p, q}}, &outbox.Options{
				Backoff: time.Millisecond, MaxBackoff: time.Millisecond, Grace: time.Hour,
			})
			if err != nil {
				return err
			}
			refs, _ := of(ctx)
			_, _, err = relay.Deliver(ctx, refs)
			if sent := p.called("send the message"); err == nil && !sent && len(q.ids) == 0 && !p.isDead() {
				_, err = relay.Sweep(ctx) // a failed try is left to it
			}
			return err
		},
	}
}

// called reports whether the delivery has come to the point.
func (p *process) called(label string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.calls, label)
}

// carrier brings messages to the queue; each sending is a point.
type carrier struct {
	p *process
	q *queue
}

func (c *carrier) Send(_ context.Context, messages []outbox.Message) []outbox.Sent {
	all := make([]outbox.Sent, len(messages))
	for i, m := range messages {
		k := c.p.point("send the message")
		if k != killBefore && k != loseRequest {
			c.q.ids = append(c.q.ids, string(m.Body))
		}
		switch k {
		case killBefore, killAfter:
			c.p.die()
			all[i].Err = errDead
		case loseRequest, loseReply:
			all[i].Err = errors.New("no reply")
		}
	}
	return all
}

// TestAcceptedOnTheWire plays the cells on DynamoDB Local, with the outbox and its relay; every request is a point.
func TestAcceptedOnTheWire(t *testing.T) {
	g := newDatabase(t)
	var golden strings.Builder
	inTest := func(t *testing.T, name string, f func(*testing.T)) { t.Run(name, f) }
	for _, c := range []struct {
		name, input string
		repeat      idem.Repeat
	}{
		{"statement", "june", idem.Repeatable}, {"statement", "june", idem.NotRepeatable},
		{"statement with a large input", "june" + noise()[1:], idem.NotRepeatable},
	} {
		golden.WriteString(accepted(t, c.name, func(t *testing.T) *desk { return g.desk(t, c.input) }, c.repeat, inTest))
	}
	compare(t, "testdata/accepted-wire.golden", golden.String())
}

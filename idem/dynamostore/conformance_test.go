package dynamostore

import (
	"context"
	"crypto/rand"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	conformance(t, &patient)
}

// Where records are kept for longer every other reply is lost, too: the store finds out that its update has landed.
func TestConformanceWithoutTransactions(t *testing.T) {
	t.Parallel()
	conformance(t, &noTransactions)
}

// Whatever becomes of its first tries, a write lands once, and its caller learns that.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(w *wire, req *http.Request) (*http.Response, error){
		"reply lost":   (*wire).loseReply,
		"request lost": (*wire).loseRequest,
		"another transaction has the item": func(*wire, *http.Request) (*http.Response, error) {
			return answer(http.StatusBadRequest, conflicting), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faultyCalls(t, func(t *testing.T, f *fixture, ctx context.Context, c *idemtest.Call) error {
				var tries atomic.Int32
				f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
					if reads(op) || tries.Add(1) > 2 {
						return nil, nil
					}
					return fault(f.wire, req)
				})
				defer f.wire.set(nil)
				return c.Do(ctx)
			}, "lost reply")
		})
	}
	// No answer comes to any try: the caller learns that it may have been applied. The same write, sent again
	// when the network is back, says that it was.
	t.Run("all replies lost", func(t *testing.T) {
		t.Parallel()
		faultyCalls(t, func(t *testing.T, f *fixture, ctx context.Context, c *idemtest.Call) error {
			short, cancel := context.WithCancel(ctx)
			defer cancel()
			lost := 0
			f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
				if reads(op) || strings.Contains(bodyOf(t, req), schema.PartPK) {
					return nil, nil
				}
				endAfter(3, lost, cancel)
				lost++
				return f.wire.loseReply(req)
			})
			isStoreError(t, c.Do(short), true)
			f.wire.set(nil)
			return c.Do(ctx)
		}, "lost reply")
	})
	// The failed condition brings no item along: one consistent read decides.
	t.Run("no old item", func(t *testing.T) {
		t.Parallel()
		faultyCalls(t, func(_ *testing.T, f *fixture, ctx context.Context, c *idemtest.Call) error {
			f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
				if reads(op) {
					return nil, nil
				}
				return f.wire.stripItem(req)
			})
			return c.Do(ctx)
		}, "lost reply", "commit", "fencing")
	})
}

// faultyCalls runs groups of storetest on a store whose writes the function makes.
func faultyCalls(t *testing.T, write func(*testing.T, *fixture, context.Context, *idemtest.Call) error,
	groups ...string) {
	f := open(t, nil)
	storetest.Run(t, func(sub *testing.T) storetest.Harness {
		group := groupOf(t, sub)
		if group != "" && !slices.Contains(groups, group) {
			sub.SkipNow()
		}
		h := f.harness(sub, group)
		faults := idemtest.NewFaults(h.Store)
		faults.Always(func(ctx context.Context, c *idemtest.Call) error {
			if c.Method == idemtest.Get || c.Method == idemtest.Result || c.Method == idemtest.StepResult {
				return c.Do(ctx)
			}
			return write(sub, f, ctx, c)
		})
		h.Store = faults
		return h
	})
}

// reads reports whether the operation of DynamoDB is no write.
func reads(op string) bool {
	return op == "GetItem" || op == "BatchGetItem" || op == "Query" || op == "Scan"
}

// aloneDiffers are groups of cases with changes that have an audit entry: only those differ
// without transactions, but for units of work, which are refused.
var aloneDiffers = []string{"questions", "prolonged"}

// sealedDiffers are those in which results are written or read.
var sealedDiffers = []string{"result", "added result", "late outcome", "step", "accept", "settle", "commit",
	"unreadable", "copy"}

// ownTable are groups that list all that there is. The other ones share a table.
var ownTable = []string{"questions", "scan"}

func conformance(t *testing.T, o *Options) {
	t.Helper()
	shared := open(t, o)
	storetest.Run(t, func(sub *testing.T) storetest.Harness {
		group := groupOf(t, sub)
		differs := []string{group}
		switch {
		case o.Sealer != nil:
			differs = sealedDiffers
		case o.WithoutTransactions:
			differs = aloneDiffers
		}
		if group != "" && os.Getenv("IDEM_LONG") != "1" && !slices.Contains(differs, group) {
			sub.Skip("none of its requests differs from those of TestConformance and of other groups: IDEM_LONG=1 runs it")
		}
		f, loses := shared, o.WithoutTransactions && group == "prolonged"
		if loses || slices.Contains(ownTable, group) {
			f = open(sub, o)
		}
		if loses {
			f.wire.loseEveryOther("UpdateItem")
		}
		return f.harness(sub, group)
	})
}

// groupOf is the group of storetest that the subtest is in, empty for what runs them all.
func groupOf(t, sub *testing.T) string {
	_, group, _ := strings.Cut(sub.Name(), t.Name()+"/")
	group, _, _ = strings.Cut(group, "/")
	return strings.ReplaceAll(group, "_", " ")
}

// harness is the store for a case of a group.
func (f *fixture) harness(t *testing.T, group string) storetest.Harness {
	q := f.adminStore(t)
	parts := &noting{Client: q.Store.client}
	// Nothing names the parts of steps that a random acceptance replaces, or of one of two sealed forms of
	// a step that is sent again. The engine does neither.
	if group != "random" && f.o.Sealer == nil {
		q.Store.client = parts
	}
	h := storetest.Harness{
		Parallel: true, Store: &inspected{q, t, f, parts}, Scanner: f.scanner(),
		Delete: func(ctx context.Context, id string) error {
			parts.keys = nil // those of an open question stay
			f.remove(t, id)
			return nil
		},
		MaxResult: DefaultMaxResult,
	}
	if !f.o.WithoutTransactions {
		h.Unit = func(context.Context) (protocol.Unit, func(context.Context) (bool, error), error) {
			tx, pk := new(Tx), "business-"+rand.Text()
			tx.Put(types.Put{TableName: &f.table, Item: key(pk)}, nil)
			return tx, func(context.Context) (bool, error) { return len(f.raw(t, pk)) > 0, nil }, tx.Err()
		}
	}
	for name, damage := range map[string]func(item){
		"newer version":  func(it item) { it[schema.Version] = num("2") },
		"unknown state":  func(it item) { it[schema.State] = str("done") },
		"no fingerprint": func(it item) { delete(it, schema.Fingerprint) },
	} {
		h.Damages = append(h.Damages, storetest.Damage{Name: name, Do: func(_ context.Context, id string) error {
			f.change(t, id, damage)
			return nil
		}})
	}
	// TestDamagedPartsFailClosed has more.
	h.Damages = append(h.Damages, storetest.Damage{Name: "part deleted", Parts: true,
		Do: func(_ context.Context, id string) error {
			rec := f.get(t, id)
			f.remove(t, partKeyPrefix(id, rec.Owner, rec.Body.Digest)+"0")
			return nil
		}})
	return h
}

// inspected looks at how each record that is read lies in the table, and the parts that were written for it.
type inspected struct {
	*AdminStore
	t     *testing.T
	f     *fixture
	parts *noting
}

func (s *inspected) Get(ctx context.Context, id string) (*protocol.Record, error) {
	rec, err := s.AdminStore.Get(ctx, id)
	if err == nil {
		s.f.outlived(s.t, rec, s.parts.of(id))
	}
	if err == nil && rec != nil {
		s.indexed(rec)
	}
	return rec, err
}

// indexed requires that the record is in the index exactly if something is due, under its shard, and that
// no open question expires or is missing there.
func (s *inspected) indexed(rec *protocol.Record) {
	want, got := "", text(s.f.raw(s.t, rec.ID), schema.OpenShard)
	if !rec.Due.IsZero() {
		want = questionShard(rec.ID)
	}
	if want != "" && rec.State == protocol.InProgress && got == claimShard(rec.ID) {
		want = got // or a sweep has postponed it, or it was claimed over a question
	}
	require.Equal(s.t, want, got, "%+v", rec)
	require.False(s.t, rec.Open() && (want == "" || !rec.ExpiresAt.IsZero()), "%+v", rec)
}

// noting notes the keys of the parts that are written.
type noting struct {
	Client
	mu   sync.Mutex
	keys []string
}

func (c *noting) PutItem(ctx context.Context, in *dynamodb.PutItemInput,
	o ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	if pk := text(in.Item, schema.PK); strings.Contains(pk, schema.PartPK) {
		c.mu.Lock()
		c.keys = append(c.keys, pk)
		c.mu.Unlock()
	}
	return c.Client.PutItem(ctx, in, o...)
}

// of are the keys of the record's parts.
func (c *noting) of(id string) (keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pk := range c.keys {
		if strings.HasPrefix(pk, id+schema.PartPK) && !slices.Contains(keys, pk) {
			keys = append(keys, pk)
		}
	}
	return keys
}

// outlived requires that the record, nil for none, does not outlive its parts, and that those that it does
// not name any more, or never did, expire soon.
func (f *fixture) outlived(t *testing.T, rec *protocol.Record, parts []string) {
	named := map[string]bool{} // by their keys
	if rec == nil {
		rec = &protocol.Record{UpdatedAt: time.Unix(1<<40, 0)}
	}
	name := func(writer string, b protocol.Body) {
		for n := range b.Parts {
			named[partKeyPrefix(rec.ID, writer, b.Digest)+strconv.Itoa(n)] = true
		}
	}
	name(rec.Owner, rec.Body)
	for _, step := range rec.Steps {
		name(step.Write, step.Body)
	}
	for _, pk := range parts {
		it := f.raw(t, pk)
		if it == nil {
			continue // it was removed, or damaged
		}
		var at time.Time
		if it[schema.ExpiresAt] != nil {
			at = time.Unix((&decoder{item: it}).num(schema.ExpiresAt), 0)
		}
		switch {
		case !named[pk]:
			require.False(t, at.IsZero() || at.After(rec.UpdatedAt.AddDate(0, 0, 10)),
				"%s, which nothing names, expires %v: %+v", pk, at, rec)
		case rec.ExpiresAt.IsZero():
			require.Zero(t, at, "%s is a part of an open record", pk)
		default:
			require.False(t, at.Before(rec.ExpiresAt.Add(partsOutlive)), "%s expires %v, its record %v", pk, at, rec.ExpiresAt)
		}
	}
}

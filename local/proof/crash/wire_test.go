package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/local/proof/faultnet"
	"github.com/idem-go/idempotency/local/proof/rig"
)

// requests makes a point of every request of a process to DynamoDB, but for those that
// are sent again, such as by a slow machine.
type requests struct {
	p    *process
	mu   sync.Mutex
	last string
}

// networkOf is a process's way to DynamoDB.
func networkOf(p *process) *faultnet.Network {
	n, r := faultnet.New(), &requests{p: p}
	n.Set(func(c *faultnet.Call) faultnet.Fault {
		fault, err := r.point(c)
		if err != nil {
			return func(*faultnet.Call) (*faultnet.Reply, error) { return nil, err }
		}
		return fault
	})
	return n
}

// again reports whether the request is the one before.
func (r *requests) again(c *faultnet.Call) (bool, error) {
	var in any
	if err := c.Read(&in); err != nil {
		return false, err
	}
	sorted, err := json.Marshal(in)
	r.mu.Lock()
	defer r.mu.Unlock()
	same := r.last == c.Operation+string(sorted)
	r.last = c.Operation + string(sorted)
	return same, err
}

func (r *requests) point(c *faultnet.Call) (faultnet.Fault, error) {
	label, step, err := read(c)
	if err != nil {
		return nil, err
	}
	if r.p.isDead() {
		return faultnet.AccessDenied, nil // it does not ask again, and no call believes it
	}
	c.OnPass = func(reply *faultnet.Reply) {
		if reply.Status == http.StatusOK && step != "" {
			r.p.w.note(effectOf(step))
		}
	}
	if same, err := r.again(c); err != nil || same {
		return nil, err
	}
	die := func(*faultnet.Call) { r.p.die() }
	return map[kind]faultnet.Fault{
		killBefore: faultnet.KillBefore(die), killAfter: faultnet.KillAfter(die),
		loseRequest: faultnet.LoseRequest, loseReply: faultnet.LoseReply,
	}[r.p.point(label)], nil
}

type attribute struct {
	S    string               `json:",omitempty"`
	BOOL bool                 `json:",omitempty"`
	M    map[string]attribute `json:",omitempty"`
}

// read names a request by what it is for, and the step whose outcome it records.
func read(c *faultnet.Call) (label, step string, err error) {
	op := c.Operation
	var in struct {
		Key, Item, ExpressionAttributeValues map[string]attribute
		ExpressionAttributeNames             map[string]string
		TransactItems                        []struct {
			Put struct{ Item map[string]attribute }
		}
	}
	if err := c.Read(&in); err != nil {
		return "", "", fmt.Errorf("%s: %w", op, err)
	}
	part := strings.Contains(in.Key["pk"].S+in.Item["pk"].S, "#part#")
	vals := in.ExpressionAttributeValues
	name, entry := in.ExpressionAttributeNames["#step"], vals[":step"].M
	for n, first := range vals[":steps"].M {
		name, entry = n, first.M
	}
	ofMessage := strings.HasPrefix(in.Key["sk"].S, schema.OutboxSK)
	for _, item := range in.TransactItems {
		if item.Put.Item[schema.State].S == string(idem.Pending) {
			return "accept", "", nil
		}
	}
	switch {
	case op == "TransactWriteItems":
		return "commit", "", nil
	case op == "GetItem" && ofMessage:
		return "read the message", "", nil
	case ofMessage:
		return "note the message", "", nil
	case op == "GetItem", op == "BatchGetItem":
		return op, "", nil
	case part && op == "PutItem":
		return "store a part", "", nil
	case part:
		return "let a part expire", "", nil
	case op == "PutItem", has(vals, ":attempt") && has(vals, ":lease_until"), vals[":to"].S == string(idem.InProgress):
		return "claim", "", nil
	case entry != nil:
		label = stepLabel(name, entry["begun"].BOOL, entry["not_executed"].BOOL)
		if strings.HasPrefix(label, "record ") {
			step = name
		}
		return label, step, nil
	case vals[":seen"].S != "":
		return "park what was left", "", nil
	}
	return endLabel(idem.State(vals[":to"].S), false), "", nil
}

// database is a table on DynamoDB Local.
type database struct {
	endpoint, table string
	admin           *dynamodb.Client
	orders          atomic.Int64
}

func newDatabase(t *testing.T) *database {
	return &database{endpoint: dynamotest.Endpoint(t), table: rig.Table(t), admin: dynamotest.Client(t)}
}

// setup is an order of its own on the table.
func (g *database) setup(t *testing.T) *setup {
	id := "order-" + strconv.FormatInt(g.orders.Add(1), 10)
	item := rowOf(id)
	clock := new(idemtest.Clock)
	return &setup{
		order: id,
		opts:  patient(clock),
		pass:  func() { clock.Advance(time.Minute) },
		store: func(p *process) idem.Store {
			p.wired = true
			store, err := g.open(p)
			require.NoError(t, err)
			return store
		},
		put: g.put(id),
		rows: func(ctx context.Context) ([]string, error) {
			out, err := g.admin.GetItem(ctx,
				&dynamodb.GetItemInput{TableName: &g.table, Key: item, ConsistentRead: aws.Bool(true)})
			if err != nil || len(out.Item) == 0 {
				return nil, err
			}
			times, err := strconv.Atoi(rig.Text(out.Item["times"]))
			var rows []string
			for range times {
				rows = append(rows, rig.Text(out.Item["line"]))
			}
			return rows, err
		},
	}
}

func (g *database) open(p *process) (idem.Store, error) {
	client, err := dynamostore.NewClient(aws.Config{},
		&dynamostore.ClientOptions{Endpoint: g.endpoint, Transport: networkOf(p)})
	if err != nil {
		return nil, err
	}
	return dynamostore.New(client, g.table, nil)
}

func rowOf(order string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{
		"pk": &types.AttributeValueMemberS{Value: "row of " + order}, "sk": &types.AttributeValueMemberS{Value: "#"},
	}
}

// put collects an order's row, and counts how often it is committed.
func (g *database) put(order string) func(context.Context, string) error {
	return func(ctx context.Context, text string) error {
		dynamostore.TxOf(ctx).Update(types.Update{
			TableName: &g.table, Key: rowOf(order), UpdateExpression: aws.String("SET line = :line ADD times :one"),
			ExpressionAttributeValues: map[string]types.AttributeValue{
				":line": &types.AttributeValueMemberS{Value: text}, ":one": &types.AttributeValueMemberN{Value: "1"},
			},
		}, nil)
		return nil
	}
}

// noise is a step's large result, too large for the record however it is packed.
func noise() string {
	r := rand.New(rand.NewPCG(1, 2))
	b := []byte{0}
	for range 3 << 10 {
		b = append(b, "0123456789abcdef"[r.IntN(16)])
	}
	return string(b)
}

// TestMatrixOnTheWire plays the cells on DynamoDB Local, every request a point. A
// request or a reply that is lost once is sent again and changes nothing.
func TestMatrixOnTheWire(t *testing.T) {
	g := newDatabase(t)
	plays := []struct {
		scenario
		repeat idem.Repeat
		pad    string
	}{
		{scenarios[0], idem.Repeatable, ""}, {scenarios[0], idem.NotRepeatable, ""},
		{scenarios[3], idem.Repeatable, ""}, {scenarios[3], idem.NotRepeatable, ""},
		{scenarios[0], idem.Repeatable, noise()}, {scenarios[3], idem.Repeatable, noise()},
	}
	tables := make([]table, len(plays))
	t.Run("cells", func(t *testing.T) {
		for i, c := range plays {
			if c.pad != "" {
				c.name += ", large results"
			}
			newSetup := func() *setup {
				s := g.setup(t)
				s.pad = c.pad
				return s
			}
			whole := play(t, newSetup(), c.scenario, c.repeat)
			require.Equal(t, c.end, whole.state)
			tables[i] = table{sc: c.scenario, repeat: c.repeat}
			for n, label := range whole.calls[0] {
				l := line{label: label, cells: make([]string, len(kinds))}
				tables[i].lines = append(tables[i].lines, l)
				for m, k := range kinds {
					t.Run(fmt.Sprintf("%s/%s/%d %s/%s", c.name, c.repeat, n+1, label, k), func(t *testing.T) {
						t.Parallel()
						got := play(t, newSetup(), c.scenario, c.repeat, fault{n + 1, k})
						want, at, how := c.end, label, k
						if label == "store a part" {
							at, how = whole.calls[0][n+1], killBefore // of the step
						}
						if (k == killBefore || k == killAfter) && mustPark(c.scenario, c.repeat, at, how) {
							want = idem.Unknown
						}
						require.Equal(t, want, got.state, "%q", got.calls)
						if k == loseRequest || k == loseReply {
							require.Equal(t, whole.runs, got.runs)
						}
						l.cells[m] = cellOf(got)
					})
				}
			}
		}
	})
	var golden strings.Builder
	for _, tb := range tables {
		golden.WriteString(tb.text(kinds))
	}
	compare(t, "testdata/wire.golden", golden.String())
}

func has(vals map[string]attribute, name string) bool {
	_, ok := vals[name]
	return ok
}

// patient keeps a slow machine from being taken for an outage.
func patient(clock *idemtest.Clock) idem.Options {
	return idem.Options{Now: clock.Now, ClaimBudget: time.Minute, FinishBudget: time.Minute}
}

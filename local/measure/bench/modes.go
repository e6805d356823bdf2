package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/local/measure/paths"
)

// mode is one way to commit a business write with its outcome.
type mode struct {
	name string
	op   idem.Operation
	// calls that it makes and write units that it takes, metered once.
	calls int
	units float64

	rates []float64
	took  []time.Duration
}

// modesBench runs the modes in turns. It fails if one of them does not commit what
// it should, or if atomic mode takes more calls or units than it promises.
func modesBench(ctx context.Context, d *dynamo, rounds int) error {
	fmt.Printf("\none business write that commits with the outcome, %d interleaved rounds\n", rounds)
	fmt.Printf("  %-24s %8s %12s %10s %10s %8s %12s\n", "mode", "callers", "throughput", "p50", "p99", "calls", "write units")
	atomic := idem.Operation{Name: "modes", Repeat: idem.Repeatable, Mode: idem.Atomic}
	unseen := atomic
	unseen.ReplayRunsHandler = true
	modes := []*mode{
		{name: "claim, then transaction", op: idem.Operation{Name: "modes", Repeat: idem.Repeatable}},
		{name: "atomic", op: atomic},
		{name: "atomic, no look", op: unseen},
	}
	meter := &paths.Meter{Client: d.client}
	metered, err := d.engineOver(meter)
	if err != nil {
		return err
	}
	engine, err := d.engineOver(d.client)
	if err != nil {
		return err
	}
	for i, m := range modes {
		meter.Take()
		if err := d.commit(ctx, metered, m.op, fmt.Sprint("metered-", i)); err != nil {
			return err
		}
		u := meter.Take()
		for _, n := range u.Calls {
			m.calls += n
		}
		m.units = u.Write
	}
	if two, one := modes[0], modes[2]; one.calls != 1 || one.units >= two.units {
		return fmt.Errorf("atomic mode without a look takes %d calls and %.1f write units, the two-call mode %d and %.1f",
			one.calls, one.units, two.calls, two.units)
	}
	for _, callers := range []int{1, 8, 32} {
		ops := 100 + 25*callers
		for _, m := range modes {
			m.rates, m.took = nil, nil
		}
		for i := range rounds {
			for j := range modes {
				m := modes[(i+j)%len(modes)]
				rate, took, err := d.throughput(ctx, callers, ops, func(ctx context.Context, id string) error {
					return d.commit(ctx, engine, m.op, id)
				})
				if err == nil {
					err = d.committed(ctx, d.lastID())
				}
				if err != nil {
					return fmt.Errorf("%s, %d callers: %w", m.name, callers, err)
				}
				m.rates, m.took = append(m.rates, rate), append(m.took, took...)
			}
		}
		for _, m := range modes {
			slices.Sort(m.took)
			at := func(share float64) time.Duration {
				return m.took[int(share*float64(len(m.took)-1))].Round(10 * time.Microsecond)
			}
			fmt.Printf("  %-24s %8d %9.0f /s %10v %10v %8d %12.1f\n", m.name, callers, middle(m.rates), at(0.5), at(0.99), m.calls, m.units)
		}
	}
	return nil
}

// commit is one operation: a first execution whose business write commits.
func (d *dynamo) commit(ctx context.Context, e *idem.Engine, op idem.Operation, id string) error {
	out, err := e.Execute(ctx, idem.Call{
		Key: op.Key("acme", id), Fingerprint: fingerprint.Bytes([]byte(id)),
		Run: func(ctx context.Context) idem.Answer {
			paths.Business(ctx, d.table, id)
			return idem.Answer{Body: []byte(`{"ok":true}`)}
		},
	})
	if err == nil && (out.Replayed || out.State != idem.Completed) {
		return fmt.Errorf("not a first execution: %+v", out)
	}
	return err
}

// committed shows that the business write of an operation is there.
func (d *dynamo) committed(ctx context.Context, id string) error {
	strong := true
	out, err := d.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &d.table, ConsistentRead: &strong, Key: map[string]types.AttributeValue{
		schema.PK: &types.AttributeValueMemberS{Value: "account#" + id}, schema.SK: &types.AttributeValueMemberS{Value: "#"},
	}})
	if err == nil && len(out.Item) == 0 {
		err = fmt.Errorf("the business write of %s did not commit", id)
	}
	return err
}

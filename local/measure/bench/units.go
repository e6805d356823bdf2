package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/local/measure/paths"
)

// unitsTable plays every path once and prints what it took.
func unitsTable(ctx context.Context, d *dynamo) error {
	meter := &paths.Meter{Client: d.client}
	store, err := dynamostore.NewQuestions(meter, d.table, nil)
	if err != nil {
		return err
	}
	fmt.Printf("\ncalls and capacity units per path (reported by DynamoDB Local; c = the part computed from item sizes)\n")
	fmt.Printf("  %-32s %-40s %8s %8s %8s\n", "path", "calls", "write", "(c)", "read")
	for i, p := range paths.All() {
		stage, err := paths.NewStage(store, d.table, fmt.Sprintf("units-%d", i))
		if err != nil {
			return err
		}
		u, err := paths.Measure(ctx, p, stage, meter)
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		var calls []string
		for _, op := range slices.Sorted(maps.Keys(u.Calls)) {
			calls = append(calls, fmt.Sprintf("%d %s", u.Calls[op], op))
		}
		fmt.Printf("  %-32s %-40s %8.1f %8.1f %8.1f\n", p.Name, strings.Join(calls, ", "), u.Write, u.Computed, u.Read)
	}
	return nil
}

package main

import (
	"maps"
	"slices"

	"github.com/idem-go/idempotency/local/cloud"
)

// sayOutputs says the values of the stacks' outputs.
func sayOutputs(p *cloud.Plan, say func(string, ...any)) {
	for _, stack := range slices.Sorted(maps.Keys(p.Outputs)) {
		for _, name := range slices.Sorted(maps.Keys(p.Outputs[stack])) {
			say("output   %s.%s = %s", stack, name, p.Outputs[stack][name])
		}
	}
}

// writeOutputs writes them to a file, if one is named.
func writeOutputs(r *cloud.Running, path string) error {
	if path == "" {
		return nil
	}
	return r.Plan().WriteOutputs(path)
}

package iam

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Report collects what functions have called and their roles do not allow, or allow only as far as they are evaluated:
// a line for each function, action, resource and outcome. The zero value is ready. It is safe for concurrent use.
type Report struct {
	mu    sync.Mutex
	lines map[finding]string
}

// finding is what has one line.
type finding struct {
	function, action, resource string
	outcome                    Outcome
}

// Add adds a decision. It returns the line if it is new, and is empty otherwise.
func (r *Report) Add(function string, role Role, q Request, d Decision) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := finding{function, q.Action, q.Resource, d.Outcome}
	if d.Outcome == Granted || r.lines[key] != "" {
		return ""
	}
	if r.lines == nil {
		r.lines = map[finding]string{}
	}
	resource := q.Resource
	if parts := strings.SplitN(resource, ":", 6); len(parts) == 6 {
		resource = parts[5]
	}
	if keys := q.Context[leadingKeys]; len(keys) > 0 {
		resource += fmt.Sprintf(" (key %.40s)", keys[0])
	}
	because := "not granted by role " + role.Name + "; allow it in a policy" + advice(q.Action)
	switch {
	case d.Outcome == Denied:
		because = "denied to role " + role.Name + " by " + d.Why
	case d.Outcome == AsFar:
		because = "granted by role " + role.Name + " as far as it is evaluated, which leaves out " + d.Why
	case d.Why != "":
		because = "not granted by role " + role.Name + ", a condition is not met: " + d.Why
	}
	r.lines[key] = fmt.Sprintf("%s: %s on %s: %s", function, q.Action, resource, because)
	return r.lines[key]
}

// Lines are the lines, sorted.
func (r *Report) Lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Values(r.lines))
}

// grants are methods of the CDK's constructs, with the actions that they allow.
var grants = map[string]string{
	"table.GrantReadData":        "BatchGetItem ConditionCheckItem GetItem Query Scan",
	"table.GrantWriteData":       "BatchWriteItem DeleteItem PutItem UpdateItem",
	"table.GrantStreamRead":      "DescribeStream GetRecords GetShardIterator ListStreams",
	"queue.GrantSendMessages":    "SendMessage",
	"queue.GrantConsumeMessages": "ReceiveMessage DeleteMessage ChangeMessageVisibility GetQueueAttributes GetQueueUrl",
	"topic.GrantPublish":         "Publish",
	"function.GrantInvoke":       "InvokeFunction",
}

// advice is a call that grants an action.
func advice(action string) string {
	_, name, _ := strings.Cut(action, ":")
	for method, actions := range grants {
		if slices.Contains(strings.Fields(actions), name) {
			return ", in CDK e.g. " + method + "(fn)"
		}
	}
	return ""
}

package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/gateway"
	"github.com/idem-go/idempotency/local/cloud"
)

// up prints how to invoke a function that nothing else invokes, and a token if a route takes one.
func TestWhatCallersNeed(t *testing.T) {
	r := &cloud.Running{Endpoints: cloud.Endpoints{Functions: "http://front"}, Issuer: gateway.NewIssuer()}
	p := &cloud.Plan{
		Functions: []cloud.Function{{Name: "alone"}, {Name: "routed"}, {Name: "fed"}, {Name: "timed"}, {Name: "asked"}},
		APIs: []cloud.API{{Routes: map[string]cloud.Route{"$default": {Function: "routed", Auth: cloud.Custom,
			Authorizer: &cloud.Authorizer{Name: "asked"}}}}},
		Mappings:  []cloud.Mapping{{Function: "fed"}},
		Schedules: []cloud.Schedule{{Function: "timed"}},
	}
	var out strings.Builder
	s := &screen{}
	say := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	require.NoError(t, s.callers(r, p, say))
	named := regexp.MustCompile(`--function-name \w+`)
	require.Equal(t, []string{"--function-name alone"}, named.FindAllString(out.String(), -1))
	require.Contains(t, out.String(), "aws lambda invoke --endpoint-url http://front --function-name alone ")
	require.NotContains(t, out.String(), "a token of")
	p.APIs[0].Routes["POST /"] = cloud.Route{Function: "routed", Auth: cloud.JWT}
	p.Tables = []cloud.Table{{Name: "orders"}, {Name: "records"}, {Name: "workers"}}
	s.records.Store("workers", nil)
	s.records.Store("records", nil)
	require.NoError(t, s.callers(r, p, say))
	require.Contains(t, out.String(), "a token of acme: ")
	require.Equal(t, []string{"export IDEM_TABLE=records"}, regexp.MustCompile(`export IDEM_TABLE=\S*`).FindAllString(
		out.String(), -1), "the first of the template, whenever it was created")
}

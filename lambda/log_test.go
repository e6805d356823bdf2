package idemlambda_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

// A program without an option says which invocation parked which record, and nothing of the
// key's value or the request.
func TestWithoutOptionsAParkedAttemptIsLoggedWithItsRequest(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer func(stdout *os.File, logger *slog.Logger) {
		os.Stdout = stdout
		slog.SetDefault(logger)
	}(os.Stdout, slog.Default())
	os.Stdout = out
	slog.SetDefault(lambdacontext.NewLogger())
	engine, err := idem.New(memstore.New(), nil)
	require.NoError(t, err)
	refund := idem.Operation{Name: "refund"}
	h := idemlambda.Wrap(engine, refund, idemlambda.Pointer("/Customer", "/ID"), func(context.Context, struct{ Secret string }) (int, error) {
		return 0, errors.New("the provider did not answer")
	})
	ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "8476a536-e9f4-11e8-9739-2dfe598c3fcd"})
	_, err = h(ctx, []byte(`{"Customer":"acme","ID":"the-key's-value","Secret":"a secret"}`))
	require.Error(t, err)
	line, err := os.ReadFile(out.Name())
	require.NoError(t, err)
	require.Regexp(t, `^[^\n]*level=WARN message="idem: parked, somebody must resolve it" kind=parked record=`+refund.Key("acme", "the-key's-value").ID()+
		` operation=refund elapsed=\S+ attempt=1 state=unknown error="the provider did not answer" requestId=8476a536-e9f4-11e8-9739-2dfe598c3fcd\n$`, string(line))
	require.NotContains(t, string(line), "secret")
	require.NotContains(t, string(line), "the-key's-value")
}

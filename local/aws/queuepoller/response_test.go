package queuepoller

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

// AWS Lambda developer guide, "Handling errors for an SQS event source in
// Lambda" (lambda/latest/dg/services-sqs-errorhandling.html), "Success and
// failure conditions"; the rows marked "ours" are those that it does not speak of.
func TestWhatAnAnswerMeans(t *testing.T) {
	batch := []string{"a", "b", "c"}
	for answer, want := range map[string]struct {
		back []string
		why  string
	}{
		`{"batchItemFailures":[]}`:        {nil, ""},
		`{"batchItemFailures":null}`:      {nil, ""},
		`{}`:                              {nil, ""},
		`null`:                            {nil, ""},
		``:                                {nil, ""},
		`{"statusCode":200}`:              {nil, ""},
		" \n{\"batchItemFailures\":[]}\n": {nil, ""},
		`{"batchItemFailures":[{"itemIdentifier":"b"}]}`:                        {[]string{"b"}, "reported"},
		`{"batchItemFailures":[{"itemIdentifier":"c"},{"itemIdentifier":"a"}]}`: {[]string{"c", "a"}, "reported"},
		`{"batchItemFailures":[{"itemIdentifier":"c"},{"itemIdentifier":"c"}]}`: {[]string{"c"}, "reported"},
		`{"batchItemFailures":[{"itemIdentifier":"b","reason":"x"}],"more":1}`:  {[]string{"b"}, "reported"},
		`{"batchItemFailures":[`: {batch, "unexpected end of JSON"},
		`oops`:                   {batch, "invalid character"},
		`{"batchItemFailures":[{"itemIdentifier":""}]}`:                         {batch, "[0].itemIdentifier is empty"},
		`{"batchItemFailures":[{"itemIdentifier":null}]}`:                       {batch, "[0].itemIdentifier is empty"},
		`{"batchItemFailures":[{"itemIdentifer":"b"}]}`:                         {batch, "[0] has no itemIdentifier"},
		`{"batchItemFailures":[{"ItemIdentifier":"b"}]}`:                        {batch, "[0] has no itemIdentifier"},
		`{"batchItemFailures":[{}]}`:                                            {batch, "[0] has no itemIdentifier"},
		`{"batchItemFailures":[{"itemIdentifier":"a"},{"itemIdentifier":"z"}]}`: {batch, `"z" is no message of this batch`},
		// Ours.
		`{"batchItemFailures":[{"itemIdentifier":7}]}`: {batch, "[0].itemIdentifier"},
		`{"batchItemFailures":[null]}`:                 {batch, "[0] has no itemIdentifier"},
		`{"batchItemFailures":["a"]}`:                  {batch, "batchItemFailures: "},
		`{"batchItemFailures":{"itemIdentifier":"a"}}`: {batch, "batchItemFailures: "},
		`{"batchItemFailures":"a"}`:                    {batch, "batchItemFailures: "},
		`[]`:                                           {batch, "cannot unmarshal array"},
		`"done"`:                                       {batch, "cannot unmarshal string"},
		`true`:                                         {batch, "cannot unmarshal bool"},
	} {
		o := Options{ReportBatchItemFailures: true}
		back, why := o.verdict(runtime.Result{Payload: []byte(answer)}, nil, batch)
		require.Equal(t, want.back, back, "%s", answer)
		if want.why == "" {
			require.NoError(t, why, "%s", answer)
		} else {
			require.ErrorContains(t, why, want.why, "%s", answer)
		}

		// Without the report no answer is read.
		back, why = Options{}.verdict(runtime.Result{Payload: []byte(answer)}, nil, batch)
		require.NoError(t, why, "%s", answer)
		require.Empty(t, back, "%s", answer)
	}
}

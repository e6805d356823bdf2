package provider

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEvaluate(t *testing.T) {
	const queue = `
variable "name" {
  type = string
}
resource "aws_sqs_queue" "work" {
  name = "work-${var.name}"
}
`
	for name, tc := range map[string]struct{ labels, body, says string }{
		"fine": {`"aws_sqs_queue_policy" "p"`,
			"queue_url = aws_sqs_queue.work.url\n policy = jsonencode({ A = aws_sqs_queue.work.arn })", ""},
		"syntax":       {`"aws_sqs_queue" "q"`, "name = {", "Unclosed configuration block"},
		"type":         {`"aws_sqs_que" "q"`, "name = 3", `An argument named "name" is not expected here`},
		"attribute":    {`"aws_sqs_queue" "q"`, "visibility = 3", `An argument named "visibility" is not expected here`},
		"kind":         {`"aws_sqs_queue" "q"`, `delay_seconds = "long"`, `"delay_seconds": a number is required`},
		"missing":      {`"aws_sqs_queue_policy" "p"`, "queue_url = aws_sqs_queue.work.url", `"policy" is required`},
		"a reference":  {`"aws_sqs_queue" "q"`, "policy = aws_sqs_queue.work.urn", `attribute named "urn"`},
		"no resource":  {`"aws_sqs_queue" "q"`, "policy = aws_sqs_queue.worker.url", `attribute named "worker"`},
		"no variable":  {`"aws_sqs_queue" "q"`, "name = var.names", `attribute named "names"`},
		"a dependency": {`"aws_sqs_queue" "q"`, "depends_on = [aws_iam_role.r]", `no variable named "aws_iam_role"`},
		"a block":      {`"aws_sqs_queue" "q"`, "redrive {\n}", `Blocks of type "redrive" are not expected here`},
		"two blocks": {`"aws_lambda_function" "f"`,
			"function_name = \"f\"\n role = \"r\"\n environment {\n}\n environment {\n}", "Too many environment blocks"},
	} {
		t.Run(name, func(t *testing.T) {
			found, problems := Evaluate(map[string]string{
				"a.tf": queue, "b.tf": "resource " + tc.labels + " {\n " + tc.body + "\n}\n"})
			if tc.says == "" {
				require.Empty(t, problems)
				require.Equal(t, "work-${var.name}", found["aws_sqs_queue.work"]["name"])
				return
			}
			require.ErrorContains(t, errors.Join(problems.Errs()...), tc.says)
		})
	}
}

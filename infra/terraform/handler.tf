# Made from the constructs of package infra: see README.md. go test ./template-tests -run TestPlain -update renews it.

variable "handler_zip" {
  description = "Path of the archive of the handler, with its binary bootstrap."
  type        = string
}

variable "handler_environment" {
  default     = {}
  description = "Further variables in the environment of the handler."
  type        = map(string)
}

resource "aws_lambda_function" "handler" {
  architectures    = ["arm64"]
  depends_on       = [aws_iam_role_policy.handler_role_policy]
  filename         = var.handler_zip
  function_name    = "${var.name}-handler"
  handler          = "bootstrap"
  memory_size      = 256
  role             = aws_iam_role.handler_role.arn
  runtime          = "provided.al2023"
  source_code_hash = filebase64sha256(var.handler_zip)
  timeout          = 10

  environment {
    variables = merge(var.handler_environment, {
      GOMEMLIMIT            = "217MiB"
      IDEM_FUNCTION_TIMEOUT = "10"
      IDEM_TABLE            = aws_dynamodb_table.records.name
    })
  }

  logging_config {
    application_log_level = "INFO"
    log_format            = "JSON"
    log_group             = aws_cloudwatch_log_group.handler_logs.name
    system_log_level      = "WARN"
  }
}

resource "aws_cloudwatch_metric_alarm" "handler_duplicates" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "of at least 100 calls in 5 minutes 50 % had a key that was in use, and again in the next 5: a client repeats requests without end. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#duplicates"
  alarm_name          = "${var.name}-handler-duplicates"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  datapoints_to_alarm = 2
  evaluation_periods  = 3
  threshold           = 50
  treat_missing_data  = "notBreaching"

  metric_query {
    expression  = "IF(calls >= 100, share, 0)"
    id          = "expr_1"
    label       = "duplicate"
    return_data = true
  }

  metric_query {
    id          = "calls"
    return_data = false

    metric {
      dimensions = {
        service = aws_lambda_function.handler.function_name
      }
      metric_name = "duplicate"
      namespace   = "Idempotency"
      period      = 300
      stat        = "SampleCount"
    }
  }

  metric_query {
    id          = "share"
    return_data = false

    metric {
      dimensions = {
        service = aws_lambda_function.handler.function_name
      }
      metric_name = "duplicate"
      namespace   = "Idempotency"
      period      = 300
      stat        = "Average"
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "handler_duration" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "an invocation took 80% of the time-out: beyond it operations that are not repeatable become unknown. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#duration"
  alarm_name          = "${var.name}-handler-duration"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    FunctionName = aws_lambda_function.handler.function_name
  }
  evaluation_periods = 1
  metric_name        = "Duration"
  namespace          = "AWS/Lambda"
  period             = 300
  statistic          = "Maximum"
  threshold          = 8000
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "handler_errors" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "invocations fail. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#errors"
  alarm_name          = "${var.name}-handler-errors"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    FunctionName = aws_lambda_function.handler.function_name
  }
  evaluation_periods = 1
  metric_name        = "Errors"
  namespace          = "AWS/Lambda"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "handler_failed_open" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "handlers ran while the table could not be reached, and nothing of it is recorded: duplicates may have taken effect. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#failedopen"
  alarm_name          = "${var.name}-handler-failed-open"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    service = aws_lambda_function.handler.function_name
  }
  evaluation_periods = 1
  metric_name        = "failed_open"
  namespace          = "Idempotency"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "handler_key_reused" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "20 calls in 5 minutes had a used key and another input: a client has a fault, or a caller tries keys of others. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#keyreused"
  alarm_name          = "${var.name}-handler-key-reused"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    service = aws_lambda_function.handler.function_name
  }
  evaluation_periods = 1
  metric_name        = "key_reused"
  namespace          = "Idempotency"
  period             = 300
  statistic          = "Sum"
  threshold          = 20
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_log_group" "handler_logs" {
  name              = "${var.name}-handler-logs"
  retention_in_days = var.log_retention
  skip_destroy      = true
}

resource "aws_cloudwatch_metric_alarm" "handler_outcome_dropped" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "an outcome could not be recorded in time: the operation may have taken effect, and its record does not say so. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#outcomedropped"
  alarm_name          = "${var.name}-handler-outcome-dropped"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    service = aws_lambda_function.handler.function_name
  }
  evaluation_periods = 1
  metric_name        = "outcome_dropped"
  namespace          = "Idempotency"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "handler_record_unreadable" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "a record is damaged or of a newer version: its calls are refused, and nothing runs. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#recordunreadable"
  alarm_name          = "${var.name}-handler-record-unreadable"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    service = aws_lambda_function.handler.function_name
  }
  evaluation_periods = 1
  metric_name        = "record_unreadable"
  namespace          = "Idempotency"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_iam_role" "handler_role" {
  assume_role_policy = jsonencode({
    Statement = [{
      Action = "sts:AssumeRole"
      Effect = "Allow"
      Principal = {
        Service = "lambda.amazonaws.com"
      }
    }]
    Version = "2012-10-17"
  })
  name = "${var.name}-handler-role"
}

resource "aws_iam_role_policy" "handler_role_policy" {
  name = "${var.name}-handler-role-policy"
  policy = jsonencode({
    Statement = [{
      Action   = ["logs:CreateLogStream", "logs:PutLogEvents"]
      Effect   = "Allow"
      Resource = "${aws_cloudwatch_log_group.handler_logs.arn}:*"
      }, {
      Action   = ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"]
      Effect   = "Allow"
      Resource = aws_dynamodb_table.records.arn
    }]
    Version = "2012-10-17"
  })
  role = aws_iam_role.handler_role.name
}

resource "aws_cloudwatch_metric_alarm" "handler_store_unavailable" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "10 calls in 5 minutes could not reach the table and were refused: nothing ran, and clients may come again. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#storeunavailable"
  alarm_name          = "${var.name}-handler-store-unavailable"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    service = aws_lambda_function.handler.function_name
  }
  evaluation_periods = 1
  metric_name        = "store_unavailable"
  namespace          = "Idempotency"
  period             = 300
  statistic          = "Sum"
  threshold          = 10
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "handler_throttles" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "invocations are throttled: raise the account's or the function's concurrency, or lower the sources'. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#throttles"
  alarm_name          = "${var.name}-handler-throttles"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    FunctionName = aws_lambda_function.handler.function_name
  }
  evaluation_periods = 1
  metric_name        = "Throttles"
  namespace          = "AWS/Lambda"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

output "handler_arn" {
  value = aws_lambda_function.handler.arn
}

output "handler_name" {
  value = aws_lambda_function.handler.function_name
}

output "handler_role_name" {
  value = aws_iam_role.handler_role.name
}

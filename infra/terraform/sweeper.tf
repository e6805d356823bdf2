# Made from the constructs of package infra: see README.md. go test ./template-tests -run TestPlain -update renews it.

variable "sweeper_zip" {
  description = "Path of the archive of the sweeper, with its binary bootstrap."
  type        = string
}

variable "sweeper_environment" {
  default     = {}
  description = "Further variables in the environment of the sweeper."
  type        = map(string)
}

resource "aws_lambda_function" "sweeper" {
  architectures    = ["arm64"]
  depends_on       = [aws_iam_role_policy.sweeper_role_policy]
  filename         = var.sweeper_zip
  function_name    = "${var.name}-sweeper"
  handler          = "bootstrap"
  memory_size      = 256
  role             = aws_iam_role.sweeper_role.arn
  runtime          = "provided.al2023"
  source_code_hash = filebase64sha256(var.sweeper_zip)
  timeout          = 50

  environment {
    variables = merge(var.sweeper_environment, {
      GOMEMLIMIT             = "217MiB"
      IDEM_FUNCTION_TIMEOUT  = "50"
      IDEM_SWEEP_ESCALATIONS = aws_sqs_queue.sweeper_escalations.url
      IDEM_TABLE             = aws_dynamodb_table.records.name
    })
  }

  logging_config {
    application_log_level = "INFO"
    log_format            = "JSON"
    log_group             = aws_cloudwatch_log_group.sweeper_logs.name
    system_log_level      = "WARN"
  }
}

resource "aws_cloudwatch_metric_alarm" "sweeper_errors" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "invocations fail. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#errors"
  alarm_name          = "${var.name}-sweeper-errors"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    FunctionName = aws_lambda_function.sweeper.function_name
  }
  evaluation_periods = 1
  metric_name        = "Errors"
  namespace          = "AWS/Lambda"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "sweeper_escalated" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "the sweep could not find out whether an operation took effect: an operator must. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#escalated"
  alarm_name          = "${var.name}-sweeper-escalated"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    service = aws_lambda_function.sweeper.function_name
  }
  evaluation_periods = 1
  metric_name        = "escalated"
  namespace          = "Idempotency"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_sqs_queue" "sweeper_escalations" {
  message_retention_seconds = 1209600
  name                      = "${var.name}-sweeper-escalations"
  sqs_managed_sse_enabled   = true

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_cloudwatch_metric_alarm" "sweeper_escalations_depth" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "the sweep has escalated questions: find out what became of them, and resolve their records. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#escalationsdepth"
  alarm_name          = "${var.name}-sweeper-escalations-depth"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    QueueName = aws_sqs_queue.sweeper_escalations.name
  }
  evaluation_periods = 1
  metric_name        = "ApproximateNumberOfMessagesVisible"
  namespace          = "AWS/SQS"
  period             = 300
  statistic          = "Maximum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "sweeper_escalations_old" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "in six days the escalation queue was hardly ever empty: what has been there for so long is deleted within eight, and its record stays open: resolve it, and delete the message. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#escalationsold"
  alarm_name          = "${var.name}-sweeper-escalations-old"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  datapoints_to_alarm = 144
  dimensions = {
    QueueName = aws_sqs_queue.sweeper_escalations.name
  }
  evaluation_periods = 168
  metric_name        = "ApproximateNumberOfMessagesVisible"
  namespace          = "AWS/SQS"
  period             = 3600
  statistic          = "Maximum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_sqs_queue_policy" "sweeper_escalations_policy" {
  policy = jsonencode({
    Statement = [{
      Action = "sqs:*"
      Condition = {
        Bool = {
          "aws:SecureTransport" = "false"
        }
      }
      Effect = "Deny"
      Principal = {
        AWS = "*"
      }
      Resource = aws_sqs_queue.sweeper_escalations.arn
    }]
    Version = "2012-10-17"
  })
  queue_url = aws_sqs_queue.sweeper_escalations.url
}

resource "aws_lambda_function_event_invoke_config" "sweeper_event_invoke_config" {
  function_name                = aws_lambda_function.sweeper.function_name
  maximum_event_age_in_seconds = 60
  maximum_retry_attempts       = 0
  qualifier                    = "$LATEST"
}

resource "aws_cloudwatch_log_group" "sweeper_logs" {
  name              = "${var.name}-sweeper-logs"
  retention_in_days = var.log_retention
  skip_destroy      = true
}

resource "aws_cloudwatch_metric_alarm" "sweeper_not_started" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "accepted work expired before a worker started it: it was not executed, and its client must ask again. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#notstarted"
  alarm_name          = "${var.name}-sweeper-not-started"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    service = aws_lambda_function.sweeper.function_name
  }
  evaluation_periods = 1
  metric_name        = "not_started"
  namespace          = "Idempotency"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "sweeper_oldest_open" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "an operation has been an open question for 15m0s: whether it took effect is unknown, and its customer waits. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#oldestopen"
  alarm_name          = "${var.name}-sweeper-oldest-open"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    service = aws_lambda_function.sweeper.function_name
  }
  evaluation_periods = 1
  metric_name        = "oldest_open"
  namespace          = "Idempotency"
  period             = 300
  statistic          = "Maximum"
  threshold          = 900
  treat_missing_data = "ignore"
}

resource "aws_iam_policy" "sweeper_operator_policy" {
  description = "For operators who work off the escalation queue."
  name        = "${var.name}-sweeper-operator-policy"
  path        = "/"
  policy = jsonencode({
    Statement = [{
      Action   = ["sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:ReceiveMessage"]
      Effect   = "Allow"
      Resource = aws_sqs_queue.sweeper_escalations.arn
    }]
    Version = "2012-10-17"
  })
}

resource "aws_cloudwatch_metric_alarm" "sweeper_record_unreadable" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "a record is damaged or of a newer version: its calls are refused, and nothing runs. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#recordunreadable"
  alarm_name          = "${var.name}-sweeper-record-unreadable"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    service = aws_lambda_function.sweeper.function_name
  }
  evaluation_periods = 1
  metric_name        = "record_unreadable"
  namespace          = "Idempotency"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_iam_role" "sweeper_role" {
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
  name = "${var.name}-sweeper-role"
}

resource "aws_iam_role_policy" "sweeper_role_policy" {
  name = "${var.name}-sweeper-role-policy"
  policy = jsonencode({
    Statement = [{
      Action   = ["logs:CreateLogStream", "logs:PutLogEvents"]
      Effect   = "Allow"
      Resource = "${aws_cloudwatch_log_group.sweeper_logs.arn}:*"
      }, {
      Action   = ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"]
      Effect   = "Allow"
      Resource = aws_dynamodb_table.records.arn
      }, {
      Action   = "dynamodb:Query"
      Effect   = "Allow"
      Resource = "${aws_dynamodb_table.records.arn}/index/open"
      }, {
      Action   = "sqs:SendMessage"
      Effect   = "Allow"
      Resource = aws_sqs_queue.sweeper_escalations.arn
    }]
    Version = "2012-10-17"
  })
  role = aws_iam_role.sweeper_role.name
}

resource "aws_cloudwatch_event_rule" "sweeper_schedule" {
  description         = "Has the sweeper look for what is due."
  name                = "${var.name}-sweeper-schedule"
  schedule_expression = "rate(1 minute)"
}

resource "aws_lambda_permission" "sweeper_schedule_permission" {
  action        = "lambda:InvokeFunction"
  function_name = aws_lambda_function.sweeper.arn
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.sweeper_schedule.arn
}

resource "aws_cloudwatch_event_target" "sweeper_schedule_target" {
  arn       = aws_lambda_function.sweeper.arn
  rule      = aws_cloudwatch_event_rule.sweeper_schedule.name
  target_id = "Sweeper"
}

resource "aws_cloudwatch_metric_alarm" "sweeper_stopped" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "no sweep could count the open questions for about half an hour: operations whose process died stay in progress, and open questions are not asked; look at the sweeper's log and its rule. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#stopped"
  alarm_name          = "${var.name}-sweeper-stopped"
  comparison_operator = "LessThanThreshold"
  datapoints_to_alarm = 2
  dimensions = {
    service = aws_lambda_function.sweeper.function_name
  }
  evaluation_periods = 2
  metric_name        = "oldest_open"
  namespace          = "Idempotency"
  period             = 300
  statistic          = "SampleCount"
  threshold          = 1
  treat_missing_data = "breaching"
}

resource "aws_cloudwatch_metric_alarm" "sweeper_throttles" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "invocations are throttled: raise the account's or the function's concurrency, or lower the sources'. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#throttles"
  alarm_name          = "${var.name}-sweeper-throttles"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    FunctionName = aws_lambda_function.sweeper.function_name
  }
  evaluation_periods = 1
  metric_name        = "Throttles"
  namespace          = "AWS/Lambda"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

output "escalation_queue_url" {
  value = aws_sqs_queue.sweeper_escalations.url
}

output "sweeper_operator_policy_arn" {
  value = aws_iam_policy.sweeper_operator_policy.arn
}

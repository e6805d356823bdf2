# Made from the constructs of package infra: see README.md. go test ./template-tests -run TestPlain -update renews it.

variable "worker_zip" {
  description = "Path of the archive of the worker, with its binary bootstrap."
  type        = string
}

variable "worker_environment" {
  default     = {}
  description = "Further variables in the environment of the worker."
  type        = map(string)
}

resource "aws_lambda_function" "worker" {
  architectures    = ["arm64"]
  depends_on       = [aws_iam_role_policy.worker_role_policy]
  filename         = var.worker_zip
  function_name    = "${var.name}-worker"
  handler          = "bootstrap"
  memory_size      = 256
  role             = aws_iam_role.worker_role.arn
  runtime          = "provided.al2023"
  source_code_hash = filebase64sha256(var.worker_zip)
  timeout          = 10

  environment {
    variables = merge(var.worker_environment, {
      GOMEMLIMIT            = "217MiB"
      IDEM_FUNCTION_TIMEOUT = "10"
      IDEM_QUEUE_BATCH_SIZE = "10"
      IDEM_QUEUE_REDELIVERY = "1555200"
      IDEM_QUEUE_REPEAT     = "repeatable"
      IDEM_TABLE            = aws_dynamodb_table.records.name
    })
  }

  logging_config {
    application_log_level = "INFO"
    log_format            = "JSON"
    log_group             = aws_cloudwatch_log_group.worker_logs.name
    system_log_level      = "WARN"
  }
}

resource "aws_cloudwatch_metric_alarm" "worker_duplicates" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "of at least 100 calls in 5 minutes 50 % had a key that was in use, and again in the next 5: a client repeats requests without end. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#duplicates"
  alarm_name          = "${var.name}-worker-duplicates"
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
        service = aws_lambda_function.worker.function_name
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
        service = aws_lambda_function.worker.function_name
      }
      metric_name = "duplicate"
      namespace   = "Idempotency"
      period      = 300
      stat        = "Average"
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "worker_duration" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "an invocation took 80% of the time-out: beyond it operations that are not repeatable become unknown. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#duration"
  alarm_name          = "${var.name}-worker-duration"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    FunctionName = aws_lambda_function.worker.function_name
  }
  evaluation_periods = 1
  metric_name        = "Duration"
  namespace          = "AWS/Lambda"
  period             = 300
  statistic          = "Maximum"
  threshold          = 8000
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "worker_errors" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "invocations fail. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#errors"
  alarm_name          = "${var.name}-worker-errors"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    FunctionName = aws_lambda_function.worker.function_name
  }
  evaluation_periods = 1
  metric_name        = "Errors"
  namespace          = "AWS/Lambda"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "worker_failed_open" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "handlers ran while the table could not be reached, and nothing of it is recorded: duplicates may have taken effect. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#failedopen"
  alarm_name          = "${var.name}-worker-failed-open"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    service = aws_lambda_function.worker.function_name
  }
  evaluation_periods = 1
  metric_name        = "failed_open"
  namespace          = "Idempotency"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "worker_key_reused" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "20 calls in 5 minutes had a used key and another input: a client has a fault, or a caller tries keys of others. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#keyreused"
  alarm_name          = "${var.name}-worker-key-reused"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    service = aws_lambda_function.worker.function_name
  }
  evaluation_periods = 1
  metric_name        = "key_reused"
  namespace          = "Idempotency"
  period             = 300
  statistic          = "Sum"
  threshold          = 20
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_log_group" "worker_logs" {
  name              = "${var.name}-worker-logs"
  retention_in_days = var.log_retention
  skip_destroy      = true
}

resource "aws_cloudwatch_metric_alarm" "worker_outcome_dropped" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "an outcome could not be recorded in time: the operation may have taken effect, and its record does not say so. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#outcomedropped"
  alarm_name          = "${var.name}-worker-outcome-dropped"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    service = aws_lambda_function.worker.function_name
  }
  evaluation_periods = 1
  metric_name        = "outcome_dropped"
  namespace          = "Idempotency"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_sqs_queue" "worker_queue" {
  message_retention_seconds = 345600
  name                      = "${var.name}-worker-queue"
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.worker_queue_dead_letters.arn
    maxReceiveCount     = 5
  })
  sqs_managed_sse_enabled    = true
  visibility_timeout_seconds = 60
}

resource "aws_cloudwatch_metric_alarm" "worker_queue_age" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "a message has been waiting for 15m0s: the consumer is down, throttled, or too slow. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#age"
  alarm_name          = "${var.name}-worker-queue-age"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    QueueName = aws_sqs_queue.worker_queue.name
  }
  evaluation_periods = 1
  metric_name        = "ApproximateAgeOfOldestMessage"
  namespace          = "AWS/SQS"
  period             = 300
  statistic          = "Maximum"
  threshold          = 900
  treat_missing_data = "notBreaching"
}

resource "aws_sqs_queue" "worker_queue_dead_letters" {
  message_retention_seconds = 1209600
  name                      = "${var.name}-worker-queue-dead-letters"
  sqs_managed_sse_enabled   = true

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_cloudwatch_metric_alarm" "worker_queue_dead_letters_depth" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "messages could not be handled: see why, resolve their records, and redrive them. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#deadlettersdepth"
  alarm_name          = "${var.name}-worker-queue-dead-letters-depth"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    QueueName = aws_sqs_queue.worker_queue_dead_letters.name
  }
  evaluation_periods = 1
  metric_name        = "ApproximateNumberOfMessagesVisible"
  namespace          = "AWS/SQS"
  period             = 300
  statistic          = "Maximum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "worker_queue_dead_letters_old" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "in six days the queue was hardly ever empty: what has been there for so long is deleted within eight, dead letters within four; redrive or save it. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#deadlettersold"
  alarm_name          = "${var.name}-worker-queue-dead-letters-old"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  datapoints_to_alarm = 144
  dimensions = {
    QueueName = aws_sqs_queue.worker_queue_dead_letters.name
  }
  evaluation_periods = 168
  metric_name        = "ApproximateNumberOfMessagesVisible"
  namespace          = "AWS/SQS"
  period             = 3600
  statistic          = "Maximum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_sqs_queue_policy" "worker_queue_dead_letters_policy" {
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
      Resource = aws_sqs_queue.worker_queue_dead_letters.arn
    }]
    Version = "2012-10-17"
  })
  queue_url = aws_sqs_queue.worker_queue_dead_letters.url
}

resource "aws_cloudwatch_metric_alarm" "worker_queue_failed" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "1 operations of messages failed permanently in 5 minutes: the messages are acknowledged, and only the records and OnFailed have them. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#failed"
  alarm_name          = "${var.name}-worker-queue-failed"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    service = aws_lambda_function.worker.function_name
  }
  evaluation_periods = 1
  metric_name        = "failed"
  namespace          = "Idempotency"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_sqs_queue_policy" "worker_queue_policy" {
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
      Resource = aws_sqs_queue.worker_queue.arn
    }]
    Version = "2012-10-17"
  })
  queue_url = aws_sqs_queue.worker_queue.url
}

resource "aws_lambda_event_source_mapping" "worker_queue_source" {
  batch_size              = 10
  depends_on              = [aws_iam_role_policy.worker_role_policy]
  event_source_arn        = aws_sqs_queue.worker_queue.arn
  function_name           = aws_lambda_function.worker.function_name
  function_response_types = ["ReportBatchItemFailures"]
}

resource "aws_cloudwatch_metric_alarm" "worker_record_unreadable" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "a record is damaged or of a newer version: its calls are refused, and nothing runs. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#recordunreadable"
  alarm_name          = "${var.name}-worker-record-unreadable"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    service = aws_lambda_function.worker.function_name
  }
  evaluation_periods = 1
  metric_name        = "record_unreadable"
  namespace          = "Idempotency"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

resource "aws_iam_role" "worker_role" {
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
  name = "${var.name}-worker-role"
}

resource "aws_iam_role_policy" "worker_role_policy" {
  name = "${var.name}-worker-role-policy"
  policy = jsonencode({
    Statement = [{
      Action   = ["logs:CreateLogStream", "logs:PutLogEvents"]
      Effect   = "Allow"
      Resource = "${aws_cloudwatch_log_group.worker_logs.arn}:*"
      }, {
      Action   = ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"]
      Effect   = "Allow"
      Resource = aws_dynamodb_table.records.arn
      }, {
      Action   = ["sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:GetQueueUrl", "sqs:ReceiveMessage"]
      Effect   = "Allow"
      Resource = aws_sqs_queue.worker_queue.arn
    }]
    Version = "2012-10-17"
  })
  role = aws_iam_role.worker_role.name
}

resource "aws_cloudwatch_metric_alarm" "worker_store_unavailable" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "10 calls in 5 minutes could not reach the table and were refused: nothing ran, and clients may come again. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#storeunavailable"
  alarm_name          = "${var.name}-worker-store-unavailable"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    service = aws_lambda_function.worker.function_name
  }
  evaluation_periods = 1
  metric_name        = "store_unavailable"
  namespace          = "Idempotency"
  period             = 300
  statistic          = "Sum"
  threshold          = 10
  treat_missing_data = "notBreaching"
}

resource "aws_cloudwatch_metric_alarm" "worker_throttles" {
  alarm_actions       = [var.alarm_topic]
  alarm_description   = "invocations are throttled: raise the account's or the function's concurrency, or lower the sources'. Runbook: https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md#throttles"
  alarm_name          = "${var.name}-worker-throttles"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  dimensions = {
    FunctionName = aws_lambda_function.worker.function_name
  }
  evaluation_periods = 1
  metric_name        = "Throttles"
  namespace          = "AWS/Lambda"
  period             = 300
  statistic          = "Sum"
  threshold          = 1
  treat_missing_data = "notBreaching"
}

output "dead_letter_queue_url" {
  value = aws_sqs_queue.worker_queue_dead_letters.url
}

output "queue_url" {
  value = aws_sqs_queue.worker_queue.url
}

output "worker_arn" {
  value = aws_lambda_function.worker.arn
}

output "worker_name" {
  value = aws_lambda_function.worker.function_name
}

output "worker_role_name" {
  value = aws_iam_role.worker_role.name
}

mock_provider "aws" {}

# The archives are any files that exist.
variables {
  alarm_topic = "arn:aws:sns:eu-west-1:111122223333:alarms"
  tenant      = "a%2Fb"
  handler_zip = "main.tf"
  worker_zip  = "main.tf"
  sweeper_zip = "main.tf"
  relay_zip   = "main.tf"
}

run "plan" {
  command = plan
}

run "refused_variables" {
  command = plan
  variables {
    alarm_topic = "alarms"
    name        = "a b"
    tenant      = "a/b"
  }
  expect_failures = [var.alarm_topic, var.name, var.tenant]
}

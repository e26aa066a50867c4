
=head1 NAME

ZklockBackend - one PostgreSQL session that a TAP test can leave waiting

=head1 SYNOPSIS

	my $s = $node->backend;
	$s->query("SELECT zk_lock_acquire('/job')");			# dies if it fails
	is($s->errcode('SELECT 1/0'), '22012');

	$s->send("SELECT zk_lock_acquire('/other', '1min')");	# does not wait
	ok(!$s->is_done);
	is($s->result->{out}, 't');
	$s->quit;

Such a session is made by C<< ZklockNode->backend >>.

=cut

package ZklockBackend;

use strict;
use warnings;

use parent 'PostgreSQL::Test::BackgroundPsql';

use Carp;
use Time::HiRes qw(time usleep);

sub adopt
{
	my ($class, $psql) = @_;
	my $self = bless $psql, $class;
	$self->set_query_timer_restart;
	$self->query('\set VERBOSITY verbose');
	$self->{pid} = $self->query('SELECT pg_backend_pid()');
	return $self;
}

=head1 METHODS

=over

=item $s->send($sql)

Begin to execute the statement.

=item $s->is_done

Has the statement ended?  Does not wait.

=item $s->result

Wait until the statement has ended, and return a reference to a hash: C<out>, what was printed;
C<err>, all messages; C<errcode>, the SQLSTATE of the first error, or the empty string;
C<seconds>, the time since C<send>.

A statement may run as long as it likes.  Only C<result> and the like, which wait for its end, die if that
does not come in time.

=cut

sub send
{
	my ($self, $sql) = @_;
	croak 'the last command has no result yet' if $self->{banner};

	my $banner = 'ZklockBackend: done ' . $self->{query_cnt}++;
	$self->{timeout}->start;
	$self->{stdout} = $self->{stderr} = '';
	$self->{banner} = $banner;
	$self->{sent_at} = time;
	$self->{stdin} .= "$sql\n;\n\\echo '$banner'\n\\warn '$banner'\n";
	$self->{run}->pump_nb;
	return;
}

sub is_done
{
	my ($self) = @_;
	$self->{timeout}->start;
	$self->{run}->pump_nb if $self->{run}->pumpable;
	return $self->_has_ended;
}

sub result
{
	my ($self) = @_;
	croak 'nothing was sent' unless $self->{banner};
	$self->{timeout}->start;
	while (!$self->_has_ended)
	{
		$self->{run}->pump;
	}

	my %result = (seconds => time - $self->{sent_at});
	foreach ([ out => $self->{stdout} ], [ err => $self->{stderr} ])
	{
		my ($name, $text) = @$_;
		$text =~ s/\n?\Q$self->{banner}\E\r?\n//;
		$result{$name} = $text;
	}
	$result{errcode} = $result{err} =~ /(?:ERROR|FATAL):\s+(\w{5}):/ ? $1 : '';
	delete $self->{banner};
	return \%result;
}

# psql ends when its backend does.
sub _has_ended
{
	my ($self) = @_;
	return 1 if !$self->{run}->pumpable;
	return $self->{stdout} =~ /\Q$self->{banner}\E\r?\n/
	  && $self->{stderr} =~ /\Q$self->{banner}\E\r?\n/;
}

=item $s->answer

The same, but returns only what was printed, and dies if there was an error.

=item $s->run($sql)

C<send> and C<result>.

=item $s->query($sql)

The same, but returns the output, and dies with the message if there was an error.

=item $s->errcode($sql)

The same, but returns SQLSTATE or the empty string.

=item $s->run_again($sql)

C<run>, up to five times, as long as the result is 08006 after a wait: if ZooKeeper or the server stands still until
the wait is over, the server has not heard from ZooKeeper.

=cut

sub answer
{
	my ($self) = @_;
	my $result = $self->result;
	croak "the query failed\n$result->{err}" if $result->{errcode};
	return $result->{out};
}

sub run
{
	my ($self, $sql) = @_;
	$self->send($sql);
	return $self->result;
}

sub run_again
{
	my ($self, $sql) = @_;
	my $result;
	foreach (1 .. 5)
	{
		$result = $self->run($sql);
		last if $result->{errcode} ne '08006' || $result->{seconds} < 0.1;
	}
	return $result;
}

sub query
{
	my ($self, $sql) = @_;
	my $result = $self->run($sql);
	croak "query failed: $sql\n$result->{err}" if $result->{errcode};
	return $result->{out};
}

sub query_safe { my ($self, $sql) = @_; return $self->query($sql); }
sub errcode { my ($self, $sql) = @_; return $self->run($sql)->{errcode}; }

=item $s->wait_until($sql)

Until the query returns true in this very session.

=item $s->pid

=item $s->kill_client

kill -9 of psql, not of the backend.

=back

=cut

# A session that was idle for long is not late.
sub quit
{
	my ($self) = @_;
	$self->{timeout}->start;
	return $self->SUPER::quit;
}

sub kill_client
{
	my ($self) = @_;
	kill 'KILL', map { $_->{PID} } @{ $self->{run}{KIDS} };
	eval { $self->{run}->finish };
	return;
}

sub wait_until
{
	my ($self, $sql) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	until ($self->query($sql) eq 't')
	{
		croak "timed out waiting until: $sql" if time > $deadline;
		usleep(50_000);
	}
	return 1;
}

sub pid { my ($self) = @_; return $self->{pid}; }

1;

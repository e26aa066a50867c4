
=head1 NAME

History - what many processes did under a lock, and whether that was right

=head1 SYNOPSIS

	my $history = History->new;
	$history->hammer_sql($node, 'a1', "SELECT zk_lock_acquire('/job')",
		"SELECT zk_lock_release('/job')");
	$history->hammer($curator->actor('c1'), 'mutex', '/zklock/job');

	$history->work_until(sub { $history->each_has(20) }, '20 rounds of each');
	is_deeply([ $history->problems ], [], 'no two overlapped');

A history is a directory that contenders of all kinds share.  They work until there is a
file F<stop> in it, or until they have done so many rounds.  Each round is a critical
section: it reads the number in the file F<counter>, writes it back plus one, with
nothing that protects it but the lock, and appends a line to the file F<history>:

	BEGIN END MODE VALUE WHO

BEGIN and END are CLOCK_MONOTONIC in ns, which is one clock for all processes of the
machine.  MODE is C<x> for an exclusive section, C<s> for one of a reader, and otherwise a
number: how many leases it had.  VALUE is what it read.  Only an exclusive section writes
the counter.

=cut

package History;

use strict;
use warnings;

use Carp;
use Fcntl qw(O_APPEND O_RDWR O_WRONLY SEEK_SET);
use POSIX ();
use Test::More ();
use Time::HiRes qw(CLOCK_MONOTONIC clock_gettime time usleep);

use PostgreSQL::Test::Utils;

my $test_pid = $$;
my @histories;

=head1 METHODS

=over

=item History->new

=item $history->directory

=cut

sub new
{
	my ($class) = @_;
	my $self = bless {
		directory => PostgreSQL::Test::Utils::tempdir('history'),
		pids => {},
		actors => [],
		rounds => {},
	}, $class;
	append_to_file("$self->{directory}/counter", '0' x 12);
	append_to_file("$self->{directory}/history", '');
	push @histories, $self;
	return $self;
}

sub directory { my ($self) = @_; return $self->{directory}; }

=item $history->hammer($actor, $kind, $path, rounds => 0, hold_us => 0, quantity => 1)

Let an actor of L<InteropPeer> work; without C<rounds> until C<stop>.  C<hold_us> is the least
time for which a section is held.

=item $history->hammer_sql($node, $who, $acquire, $release, mode => 'x', rounds => 0, hold_us => 0)

The same by a backend of this server, with a process of its own that does the critical
section between the two SQL commands.  Acquiring has to print C<t>.

=item $history->hammer_mix($node, $who, sub { ... }, hold_us => 0)

The same, with a function that says for each round what to do: it returns both commands
and the mode.

=item $history->work_until(sub { ... }, $what)

Until the function returns true; then tell all to stop, and wait until they have.  Dies if
one of them ends before that, or had an error.

=item $history->stop

The second half of it.

=cut

sub hammer
{
	my ($self, $actor, $kind, $path, %opt) = @_;
	$actor->send(join ' ', 'hammer', $kind, $path, $self->{directory}, $opt{rounds} // 0,
		$opt{hold_us} // 0, $opt{quantity} // ());
	push @{ $self->{actors} }, $actor;
	return;
}

sub hammer_sql
{
	my ($self, $node, $who, $acquire, $release, %opt) = @_;
	return $self->hammer_mix($node, $who, sub { ($acquire, $release, $opt{mode} // 'x') }, %opt);
}

sub hammer_mix
{
	my ($self, $node, $who, $round, %opt) = @_;
	my $pid = fork // croak "could not fork: $!";
	if ($pid)
	{
		$self->{pids}{$pid} = $who;
		return;
	}

	# In here, nothing may happen that the test does at its end, and no output may come that could
	# pass for the test's own.
	my $is_ok = eval {
		open my $nowhere, '>', '/dev/null' or die $!;
		my $builder = Test::More->builder;
		$builder->output($nowhere);
		$builder->failure_output($nowhere);
		srand;
		my $done = $self->_work($node->backend, $who, $round, %opt);
		append_to_file("$self->{directory}/rounds.$who", $done);
		1;
	};
	append_to_file("$self->{directory}/error.$who", $@) unless $is_ok;
	POSIX::_exit($is_ok ? 0 : 1);
}

sub _work
{
	my ($self, $backend, $who, $round, %opt) = @_;
	my $rounds = $opt{rounds} // 0;
	my $done = 0;
	until (-e "$self->{directory}/stop" || ($rounds && $done == $rounds))
	{
		my ($acquire, $release, $mode) = $round->();
		my $answer = $backend->query($acquire);
		die "$acquire: $answer\n" if $answer ne 't';
		$self->section($who, $mode, $opt{hold_us} // 0);
		$backend->query($release);
		$done++;
	}
	$backend->quit;
	return $done;
}

sub work_until
{
	my ($self, $condition, $what) = @_;
	$self->wait_until(
		sub {
			my @ended = grep { $_->is_done } @{ $self->{actors} };
			croak "$what: ended too early: " . join ' ', map { $_->name . ' ' . $_->result->{err} } @ended
			  if @ended;
			$self->_croak_if_failed;
			return $condition->();
		},
		$what);
	$self->stop;
	return;
}

sub stop
{
	my ($self) = @_;
	append_to_file("$self->{directory}/stop", '');
	foreach my $pid (keys %{ $self->{pids} })
	{
		waitpid $pid, 0;
		my $who = delete $self->{pids}{$pid};
		$self->_croak_if_failed;
		$self->{rounds}{$who} = slurp_file("$self->{directory}/rounds.$who");
	}
	foreach my $actor (splice @{ $self->{actors} })
	{
		$self->{rounds}{ $actor->name } = $actor->answer;
	}
	return;
}

sub _croak_if_failed
{
	my ($self) = @_;
	my @errors = map { slurp_file($_) } glob "$self->{directory}/error.*";
	croak "hammer_sql failed:\n@errors" if @errors;
	return;
}

=item $history->section($who, $mode, $hold_us)

One critical section, done by this process.

=cut

sub section
{
	my ($self, $who, $mode, $hold_us) = @_;
	$self->{counter} //= _open("$self->{directory}/counter", O_RDWR);
	$self->{history} //= _open("$self->{directory}/history", O_WRONLY | O_APPEND);

	my $begin = clock();
	sysseek $self->{counter}, 0, SEEK_SET or die "seek: $!";
	sysread $self->{counter}, my $value, 12 or die "read: $!";
	usleep($hold_us) if $hold_us;
	if ($mode eq 'x')
	{
		sysseek $self->{counter}, 0, SEEK_SET or die "seek: $!";
		syswrite $self->{counter}, sprintf '%012d', $value + 1 or die "write: $!";
	}
	my $end = clock();
	syswrite $self->{history}, sprintf "%d %d %s %d %s\n", $begin, $end, $mode, $value, $who
	  or die "write: $!";
	return;
}

sub _open
{
	my ($file, $flags) = @_;
	sysopen my $handle, $file, $flags or die "could not open $file: $!";
	return $handle;
}

=item History::clock

CLOCK_MONOTONIC in ns.

=cut

sub clock { return sprintf '%.0f', 1e9 * clock_gettime(CLOCK_MONOTONIC); }

=item $history->records

All records so far, in order of their begin: hashes of C<begin>, C<end>, C<mode>, C<value>,
C<who>.  A line that does not say all of this is C<malformed>.

=item $history->wait_until(sub { ... }, $what)

=item $history->each_has($n, @who)

Has each of these contenders, or each of all that work, done C<$n> rounds?

=item $history->has_handovers(sub { $of_which_kind{ $_[0] } }, @kinds)

Was there, for every two of these kinds, a section of the one right after a section of
the other?  The function tells the kind of a WHO.

=item $history->most_at_a_time

The greatest number of sections at one moment.

=cut

sub records
{
	my ($self) = @_;
	my $text = slurp_file("$self->{directory}/history");
	return parse($text);
}

# While others write, the last line may not be whole yet.
sub _sections
{
	my ($self) = @_;
	return grep { !exists $_->{malformed} } $self->records;
}

sub wait_until
{
	my ($self, $condition, $what) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	until ($condition->())
	{
		if (time > $deadline)
		{
			croak "timed out waiting for $what; rounds: " . $self->summary;
		}
		usleep(50_000);
	}
	return 1;
}

sub _rounds_of { my %rounds; $rounds{ $_->{who} }++ foreach @_; return %rounds; }

sub summary
{
	my ($self) = @_;
	my %rounds = _rounds_of($self->_sections);
	return join ' ', map { "$_=$rounds{$_}" } sort keys %rounds;
}

sub each_has
{
	my ($self, $n, @who) = @_;
	@who = (values %{ $self->{pids} }, map { $_->name } @{ $self->{actors} }) unless @who;
	my %rounds = _rounds_of($self->_sections);
	return !grep { ($rounds{$_} // 0) < $n } @who;
}

sub has_handovers
{
	my ($self, $kind_of, @kinds) = @_;
	my (%seen, $last);
	foreach my $kind (map { $kind_of->($_->{who}) } $self->_sections)
	{
		$seen{"$last>$kind"} = 1 if defined $last;
		$last = $kind;
	}
	foreach my $from (@kinds)
	{
		return '' if grep { $_ ne $from && !$seen{"$from>$_"} } @kinds;
	}
	return 1;
}

sub most_at_a_time
{
	my ($self) = @_;
	my $most = 0;
	my @open;
	foreach my $record ($self->_sections)
	{
		@open = (grep({ $_->{end} > $record->{begin} } @open), $record);
		$most = @open if @open > $most;
	}
	return $most;
}

=item $history->problems(leases => 1)

The problems of the history, as a list of messages: see C<problems_of>; and each contender has
recorded as many rounds as it says that it did.

=item $history->summary

The number of rounds of each contender, in one line.

=cut

sub problems
{
	my ($self, %opt) = @_;
	my %recorded = _rounds_of($self->_sections);
	my @problems = map { "$_ did $self->{rounds}{$_} rounds, and recorded " . ($recorded{$_} // 0) }
	  grep { $self->{rounds}{$_} != ($recorded{$_} // 0) } sort keys %{ $self->{rounds} };
	return (@problems,
		problems_of(slurp_file("$self->{directory}/counter"), [ $self->records ], %opt));
}

=item History::parse($text)

The records in the text of a history.

=item History::problems_of($counter, \@records, leases => 1)

Exclusive sections overlap nothing, readers overlap only readers, and there are at most
C<leases> leases at a time.  The values that were read are those of a counter that no process
disturbed, and so is the last one, C<$counter>.  Sections with leases say nothing of the
counter.  An empty history proves nothing, and is wrong.

=back

=cut

sub parse
{
	my ($text) = @_;
	my (@records, @malformed);
	foreach my $line (split /^/, $text)
	{
		my %record;
		@record{qw(begin end mode value who)} =
		  $line =~ /^(\d+) (\d+) (x|s|[1-9]\d*) (\d+) (\S+)\n$/;
		if (defined $record{who})
		{
			push @records, \%record;
		}
		else
		{
			push @malformed, { malformed => $line };
		}
	}
	@records = sort { $a->{begin} <=> $b->{begin} || $a->{end} <=> $b->{end} } @records;
	unshift @records, @malformed;
	return @records;
}

sub problems_of
{
	my ($counter, $records, %opt) = @_;
	my (@problems, @open);
	my $written = 0;

	push @problems, 'the history is empty' unless @$records;
	foreach my $record (@$records)
	{
		if (exists $record->{malformed})
		{
			push @problems, "malformed: $record->{malformed}";
			next;
		}
		push @problems, 'ends before it begins: ' . _show($record)
		  if $record->{end} < $record->{begin};

		@open = grep { $_->{end} > $record->{begin} } @open;
		push @problems, _conflicts($record, $opt{leases} // 1, @open);
		push @open, $record;

		if ($record->{mode} =~ /^[xs]$/)
		{
			push @problems, "read something else than $written: " . _show($record)
			  if $record->{value} != $written;
			$written++ if $record->{mode} eq 'x';
		}
	}
	push @problems, "the counter is $counter, but $written sections wrote it"
	  if $counter != $written;
	return @problems;
}

# Compare it with the sections that had begun before it and had not ended.
sub _conflicts
{
	my ($record, $leases, @open) = @_;

	if ($record->{mode} =~ /^\d/)
	{
		my $sum = $record->{mode};
		foreach my $other (@open)
		{
			return 'a lease beside a lock: ' . _show($record, $other) if $other->{mode} =~ /^[xs]$/;
			$sum += $other->{mode};
		}
		return $sum > $leases ? "$sum leases at a time: " . _show($record, @open) : ();
	}
	return map { 'overlap: ' . _show($_, $record) }
	  grep { $record->{mode} eq 'x' || $_->{mode} ne 's' } @open;
}

sub _show
{
	return join ' and ', map { "$_->{who} ($_->{mode}) $_->{begin}..$_->{end}, value $_->{value}" } @_;
}

# Only the test itself ends its children, and they do not end each other.
END
{
	if ($$ == $test_pid)
	{
		my $status = $?;
		foreach my $pid (map { keys %{ $_->{pids} } } @histories)
		{
			kill 'KILL', $pid;
			waitpid $pid, 0;
		}
		$? = $status;
	}
}

1;

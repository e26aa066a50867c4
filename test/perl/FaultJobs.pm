
=head1 NAME

FaultJobs - what clients and servers of a fault run do with jobs and a leadership

=head1 SYNOPSIS

	FaultJobs::prepare($node);
	FaultJobs::play($client);						# a FaultClient
	FaultJobs::finish($client, $tick_of);			# when all is right again

Writes down the answers; L<JobHistory> explains the records, and judges them.

=cut

package FaultJobs;

use strict;
use warnings;

use Time::HiRes qw(time usleep);

use PgWire;

# A path that all servers stand for.
our $led = '/led';

# Jobs: the seconds between their ticks, and the source of the ticks: a scheduler that knows the
# time, or the clock of each server.  A job of ten years has a tick that is older than any tick of a
# wrong clock; only its retries matter.
our %jobs = (
	'/once/fast' => { every => 0.5 },
	'/once/slow' => { every => 3, is_local => 1 },
	'/again/fast' => { every => 1, retry => 1 },
	'/again/slow' => { every => 6, retry => 1 },
	'/again/local' => { every => 3, retry => 1, is_local => 1 },
	'/again/long' => { every => 315_360_000, retry => 1 });

=head1 FUNCTIONS

=over

=item FaultJobs::prepare($node)

The tables that clients of this server write to.

=item FaultJobs::play($client)

One run of a job, if the record allows it, or one transaction of a leader.

=item FaultJobs::finish($client, $tick_of)

Retries the last tick of each job, C<< $tick_of->{path} >>: it must have been run.

=back

=cut

sub prepare
{
	my ($node) = @_;
	$node->safe_psql('postgres', q{CREATE TABLE ran (path text, tick text, wid text, at serial);
		CREATE TABLE led (token bigint, wid text, at serial)});
	return;
}

sub _pick { return $_[ rand @_ ]; }
sub _chance { return rand() < $_[0]; }
sub _nap { my ($long) = @_; usleep(_chance($long // 0.04) ? rand 2_500_000 : rand 40_000); return; }

sub play
{
	my ($client) = @_;
	return _chance(0.3) ? _lead($client) : _play_job($client, _pick(sort keys %jobs));
}

# --- jobs ---

sub _play_job
{
	my ($client, $path) = @_;
	my $job = $jobs{$path};
	my $tick = _tick($client, $job) // return;
	my $timeout = _pick(0, 0, int rand 300, 300 + int rand 2500);
	return _run($client, $path, tick => $tick, timeout => $timeout,
		scope => _pick('session', 'xact'), fails => _chance($job->{every} > 60 ? 0.9 : 0.2));
}

# In seconds since 1970.
sub _tick
{
	my ($client, $job) = @_;
	return sprintf '%.3f', int(time / $job->{every}) * $job->{every} unless $job->{is_local};
	my $result = $client->_sql("SELECT extract(epoch FROM zk_tick('$job->{every} s'))");
	return $result->{rows}[0] && sprintf '%.3f', $result->{rows}[0][0];
}

# A run, with work that fails or is committed.  Returns the SQLSTATE if the work or its commit had an error.
sub _run
{
	my ($client, $path, %how) = @_;
	my $claim = _begin($client, $path, %how) or return;
	my $before = _incarnation($client);
	_nap(0.1) foreach 1 .. rand 3;
	return _roll_back($client, $claim) if $how{fails};

	my $wid = "$client->{who}.w" . ++$client->{count};
	$client->_sql('BEGIN') if $how{scope} eq 'session';
	my $result = $client->_sql("INSERT INTO ran VALUES ('$path', '$how{tick}', '$wid')");
	$result = $client->_end('COMMIT', $claim) unless $result->{error};
	$client->_record('ran', claim => $claim->{id}, wid => $wid, t => $result->{t}, end => $result->{end},
		result => FaultClient::_fate($result));
	return $result->{error} if $result->{error};

	# As clients do to be safe.
	$client->_sql('ROLLBACK') if $how{scope} eq 'session' && _chance(0.3);

	# The run ends with the release.
	return if $how{scope} eq 'session' && $client->_release($claim)->{error};
	_settle($client, $claim, $before);
	return;
}

sub _begin
{
	my ($client, $path, %how) = @_;
	my $retry = $jobs{$path}{retry} ? 'true' : 'false';
	my $xact = $how{scope} eq 'xact' ? 'xact_' : '';
	my $claim = { id => "$client->{who}." . ++$client->{count}, path => $path, kind => 'mutex', scope => $how{scope} };

	$client->_sql('BEGIN') if $xact;
	my $result = $client->_sql("SELECT zk_${xact}run_once('$path', to_timestamp($how{tick}),"
		  . " timeout => '$how{timeout} ms', retry => $retry)", _chance(0.05) ? (cancel_after => rand 0.5) : ());
	my $outcome = FaultClient::_fate($result);
	$outcome = 'no' if $outcome eq 'ok' && $result->{rows}[0][0] eq 'f';
	my %said = (t => $result->{t}, end => $result->{end}, claim => $claim->{id}, path => $path, result => $outcome);
	$client->_record('run', %said, tick => $how{tick}, timeout => 1000 * $how{timeout}, wall => sprintf('%.3f', time),
		retry => $jobs{$path}{retry} ? 1 : 0, code => $result->{error} || undef, final => $how{final});
	return unless $outcome eq 'ok';

	# The client holds the lock, and has to obey all rules for that.
	$client->_record('acquire', %said, kind => 'mutex', scope => $how{scope});
	return $client->_ask('token', $claim) ? $claim : undef;
}

sub _roll_back
{
	my ($client, $claim) = @_;
	# A transaction without a statement would not say that the run has failed.
	$client->_sql('BEGIN') if $claim->{scope} eq 'session';
	$client->_sql('SELECT 1');
	my $result = $client->_sql('ROLLBACK');
	$client->_over($claim);
	$result = $client->_release($claim) if $claim->{scope} eq 'session' && !$result->{error};
	$client->_record('gave_up', claim => $claim->{id}, t => $result->{t}, end => $result->{end},
		result => FaultClient::_fate($result));
	return;
}

# Changes when the server crashes, or its ZooKeeper session expires.
sub _incarnation
{
	my ($client) = @_;
	my $result = $client->_sql(q{SELECT (SELECT backend_start FROM pg_stat_activity WHERE backend_type = 'checkpointer'),
		state IN ('connected', 'idle') AND safe, epoch FROM zk_sessions});
	return $result->{error} ? undef : { is_safe => $result->{rows}[0][1] eq 't', text => "$result->{rows}[0][0] $result->{rows}[0][2]" };
}

# Wait until the record says how the run has ended.  A server that crashes or loses its session
# before that may leave another word in the record than "done".
sub _settle
{
	my ($client, $claim, $before) = @_;
	my $deadline = PgWire::now() + 20e6;
	while (PgWire::now() < $deadline)
	{
		usleep(30_000);
		$client->_connect or next;
		my $result = $client->_sql("SELECT state, ended_at IS NOT NULL FROM zk_jobs() WHERE path = '$claim->{path}' AND token = $claim->{token}");
		my $after = _incarnation($client);
		next if $result->{error} || !$after || !$after->{is_safe};
		my $state = $result->{rows}[0] ? $result->{rows}[0][0] : 'replaced';
		my $is_same = $before && $before->{text} eq $after->{text};
		next if $state eq 'started' && $is_same;
		$client->_record('settled', claim => $claim->{id}, t => $result->{t}, end => $result->{end},
			state => $state, result => $is_same ? 'ok' : 'info');
		return;
	}
	return;
}

# --- leadership ---

# A transaction in which the server leads from the question to the commit.
sub _lead
{
	my ($client) = @_;
	if (_chance(0.15))
	{
		my $pause = _pick('0', '1 s');
		$client->_sql("SELECT zk_leader_resign('$led', '$pause')");
		return;
	}
	$client->_sql('BEGIN');
	my $asked = $client->_sql("SELECT zk_is_leader('$led')");
	return if $asked->{error} || $asked->{rows}[0][0] ne 't';
	my $seen = $client->_sql("SELECT token FROM zk_locks WHERE path = '$led' AND claim = 'held'");
	my $token = $seen->{rows}[0] && $seen->{rows}[0][0] or return;
	_nap(0.3);
	my $wid = "$client->{who}.w" . ++$client->{count};
	my $result = $client->_sql("INSERT INTO led VALUES ($token, '$wid')");
	$result = $client->_sql('COMMIT') unless $result->{error};
	$client->_record('led', path => $led, token => $token, wid => $wid, from => $asked->{end}, asked => $asked->{t},
		t => $result->{t}, end => $result->{end}, result => FaultClient::_fate($result), code => $result->{error} || undef);
	return;
}

# --- the end ---

sub finish
{
	my ($client, $tick_of) = @_;
	foreach my $path (sort keys %$tick_of)
	{
		# As an application would, because a commit may be refused on a machine that stood still.
		foreach (1 .. 5)
		{
			my $error = _run($client, $path, tick => $tick_of->{$path}, timeout => 10_000, scope => 'xact', final => 1);
			$client->_sql('ROLLBACK');
			last if ($error // '') ne 'ZK001';
		}
	}
	return;
}

1;

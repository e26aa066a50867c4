
=head1 NAME

FaultClient - works under locks of all kinds, and writes down what it is told

=head1 SYNOPSIS

	my $client = FaultClient->start('a1', $node, $store, "$directory/a1", seed => 17, until => $time, connection => 1000);
	...
	$client->wait;

Each client is a process of its own with a session on its server, C<$node>, and one on the
server that has the store with the fence, C<$store>.  The seed decides what the client does; the
faults decide when.  The file has a line for each record; L<FaultHistory> explains the records.

=cut

package FaultClient;

use strict;
use warnings;

use Carp;
use IO::Handle;
use POSIX ();
use Time::HiRes qw(usleep);

use FaultHistory;
use FaultJobs;
use PgWire;

# Paths, each of one kind, and the number of leases.
our %paths = (
	'/m1' => { kind => 'mutex' },
	'/m2' => { kind => 'mutex' },
	'/m3' => { kind => 'mutex' },
	'/fifo' => { kind => 'mutex' },
	'/rw1' => { kind => 'rw' },
	'/rw2' => { kind => 'rw' },
	'/s1' => { kind => 'semaphore', n => 1 },
	'/s3' => { kind => 'semaphore', n => 3 });

=head1 METHODS

=over

=item FaultClient::prepare($node)

The tables that clients of this server write to.

=item FaultClient->start($who, $node, $store, $file, seed => , until => , connection => , jobs => )

C<until> is a moment of L<PgWire/now>; C<connection> is C<zklock.connection_timeout> in ms,
which bounds the duration of a try; C<jobs> is how often the client plays with L<FaultJobs>,
from 0 to 1.

=item $client->wait

Until it has ended.

=item FaultClient->in_person($who, $node, $file)

Without a process: for the methods below.

=item $client->acquire($path, %how)

Returns the claim, or nothing.  C<mode> is read or write; C<scope> session or xact;
C<wait> C<< [ how => ms ] >>, where how is one of try, timeout, cancel, lock_timeout,
statement_timeout; C<lease> in ms; C<quantity>; C<must>.

=back

=cut

sub prepare
{
	my ($node) = @_;
	$node->safe_psql('postgres',
		join '', map { "CREATE TABLE $_ (path text PRIMARY KEY, n bigint NOT NULL);"
			  . "CREATE TABLE ${_}_audit (path text, value bigint, token bigint, wid text);"
			  . "INSERT INTO $_ VALUES " . join(',', map { "('$_', 0)" } sort keys %paths) . ';' } qw(fence guard));
	FaultJobs::prepare($node);
	return;
}

sub in_person
{
	my ($class, $who, $node, $file) = @_;
	open my $log, '>>', $file or croak "could not open $file: $!";
	$log->autoflush;
	return bless { who => $who, node => $node, log => $log, count => 0 }, $class;
}

sub start
{
	my ($class, $who, $node, $store, $file, %opt) = @_;
	my $pid = fork // croak "could not fork: $!";
	return bless { pid => $pid }, $class if $pid;

	my $self = $class->in_person($who, $node, $file);
	srand $opt{seed};
	my $is_ok = eval {
		$self->{store_server} = $store;
		$self->{connection} = $opt{connection};
		$self->{jobs} = $opt{jobs};
		while (PgWire::now() < $opt{until})
		{
			if ($self->_connect) { $self->_play; }
			else { usleep(100_000); }
			usleep(rand 100_000);
		}
		$self->{$_} && $self->{$_}->close foreach qw(pg store);
		1;
	};
	$self->_record('crash', what => "the client: $@") unless $is_ok;
	POSIX::_exit($is_ok ? 0 : 1);
}

sub wait { my ($self) = @_; waitpid $self->{pid}, 0; return; }

sub _pick { return $_[ rand @_ ]; }
sub _chance { return rand() < $_[0]; }

sub _record
{
	my ($self, $op, %fields) = @_;
	$fields{t} //= PgWire::now();
	$fields{end} //= $fields{t};
	my %record = (op => $op, who => $self->{who}, node => $self->{node}->name,
		pid => $self->{pg} && $self->{pg}->pid, %fields);
	syswrite $self->{log}, FaultHistory::line(\%record) . "\n";
	return;
}

sub _connect
{
	my ($self) = @_;
	return 1 if $self->{pg} && $self->{pg}->is_alive;
	$self->{pg} = eval { PgWire->new($self->{node}->host, $self->{node}->port, $self->{who}) };
	return $self->{pg};
}

sub _sql
{
	my ($self, $sql, %opt) = @_;
	my $result = $self->{pg}->query($sql, %opt);
	$self->_record('hang', what => $sql, t => $result->{t}) if $result->{error} eq 'hang';
	return $result;
}

sub _nap { my ($long) = @_; usleep(_chance($long // 0.04) ? rand 2_500_000 : rand 40_000); return; }

# --- claims ---

sub acquire
{
	my ($self, $path, %how) = @_;
	my @claims = $self->_acquire([$path], %how);
	return $claims[0];
}

sub _acquire
{
	my ($self, $paths, %how) = @_;
	my $lock = $paths{ $paths->[0] };
	my $xact = $how{scope} eq 'xact' ? 'xact_' : '';
	my ($wait, $ms) = @{ $how{wait} };
	my @arguments = @$paths > 1 ? "'{" . join(',', @$paths) . "}'" : "'$paths->[0]'";
	my $name = @$paths > 1 ? 'multilock'
	  : $lock->{kind} eq 'mutex' ? 'lock'
	  : $lock->{kind} eq 'rw' ? "$how{mode}_lock" : 'semaphore';
	push @arguments, $lock->{n} if $name eq 'semaphore';
	push @arguments, "timeout => '$ms ms'" if $wait =~ /^(try|timeout)$/;
	push @arguments, "lease_time => '$how{lease} ms'" if $how{lease};
	push @arguments, "quantity => $how{quantity}" if $how{quantity};

	$self->_sql("SET $wait = '${ms}ms'") if $wait =~ /_timeout/;
	my $result = $self->_sql("SELECT zk_$xact${name}_acquire(" . join(', ', @arguments) . ')',
		$wait eq 'cancel' ? (cancel_after => $ms / 1000) : ());

	my $outcome = $result->{error} =~ /^(lost|hang|57P0\d)$/ ? 'info'
	  : $result->{error} ? 'fail' : $result->{rows}[0][0] eq 't' ? 'ok' : 'no';

	# connection_timeout is for one question: the first client of a semaphore has two before the try.
	my $bound = $wait eq 'try' ? $self->{connection} * ($lock->{n} ? 3 : 1) : $ms;
	my @claims;
	foreach my $path (@$paths)
	{
		my $kind = $lock->{kind} eq 'rw' ? $how{mode} : $lock->{kind};
		my $claim = { id => "$self->{who}." . ++$self->{count}, path => $path, kind => $kind,
			scope => $how{scope}, n => $lock->{n}, quantity => $how{quantity} };
		$self->_record('acquire', t => $result->{t}, end => $result->{end}, result => $outcome,
			code => $result->{error} || undef, claim => $claim->{id}, path => $path, kind => $kind,
			scope => $how{scope}, wait => $wait, deadline => 1000 * $bound,
			n => $lock->{n}, quantity => $kind eq 'semaphore' ? $how{quantity} // 1 : undef,
			lease => $how{lease} ? $how{lease} * 1000 : undef, must => $how{must});
		push @claims, $claim;
	}

	# An error leaves a transaction that does nothing more.
	$self->_sql('ROLLBACK') if $result->{error};
	$self->_sql("SET $wait = 0") if $wait =~ /_timeout/;
	return $outcome eq 'ok' ? @claims : ();
}

# In a transaction, an error ends it.
sub _ask
{
	my ($self, $op, $claim, %opt) = @_;
	my $result = $self->_sql($op eq 'held' ? "SELECT zk_lock_is_held('$claim->{path}')"
		: "SELECT zk_lock_token('$claim->{path}')");
	my $answer = $result->{rows}[0] && $result->{rows}[0][0];
	$self->_record($op, t => $result->{t}, end => $result->{end}, claim => $claim->{id},
		result => $result->{error} ? 'fail' : $answer eq 'f' ? 'no' : 'ok',
		$op eq 'token' && !$result->{error} ? (token => $answer) : (), %opt);
	$claim->{token} //= $answer if $op eq 'token';
	return !$result->{error};
}

sub _over
{
	my ($self, @claims) = @_;
	$self->_record('over', claim => $_->{id}) foreach @claims;
	return;
}

sub _release
{
	my ($self, @claims) = @_;
	$self->_over(@claims);
	my %name = (mutex => 'lock', read => 'read_lock', write => 'write_lock', semaphore => 'semaphore');
	my $first = $claims[0];
	return $self->_sql(@claims > 1
		? "SELECT zk_multilock_release('{" . join(',', map { $_->{path} } @claims) . "}')"
		: "SELECT zk_$name{ $first->{kind} }_release('$first->{path}'"
		  . ($first->{quantity} ? ", $first->{quantity}" : '') . ')');
}

# The end of a transaction or a savepoint.  A commit proves that the claims that guard it were
# valid.
sub _end
{
	my ($self, $sql, @claims) = @_;
	$self->_over(grep { $_->{scope} eq 'xact' } @claims);
	my $result = $self->_sql($sql);
	$self->_record('commit', t => $result->{t}, end => $result->{end},
		claims => join(',', map { $_->{id} } @claims), code => $result->{error} || undef,
		result => _fate($result))
	  if $sql eq 'COMMIT' && @claims;
	return $result;
}

sub _fate
{
	my ($result) = @_;
	return $result->{error} =~ /^(lost|hang|57P0\d)$/ ? 'info' : $result->{error} ? 'fail' : 'ok';
}

# --- work ---

sub _is_exclusive { my ($c) = @_; return $c->{kind} =~ /^(mutex|write)$/ || ($c->{n} // 0) == 1; }

# Holds the claim for a while and checks whether it is still held.  False if there was an error.
sub _hold
{
	my ($self, @claims) = @_;
	foreach (1 .. (_chance(0.05) ? 20 + rand 60 : 1 + rand 4))
	{
		_nap();
		my $claim = _pick(@claims);
		$self->_ask('held', $claim) or return 0;
		next unless _is_exclusive($claim);
		if (!$claim->{token})
		{
			$self->_ask('token', $claim) or return 0;
		}
		$self->_fenced($claim) if _chance(0.4);
	}
	return 1;
}

# One step of work in the store with the fence: the first step only reads.
sub _fenced
{
	my ($self, $claim) = @_;
	return if $claim->{is_fenced_off} || !$claim->{token};
	my $store = $self->{store};
	if (!$store || !$store->is_alive)
	{
		my $server = $self->{store_server};
		$store = $self->{store} = eval { PgWire->new($server->host, $server->port, "$self->{who}-store") };
		return unless $store;
	}

	my $fence = "BEGIN; SELECT zk_fence('$claim->{path}', $claim->{token}); ";
	if (!defined $claim->{value})
	{
		my $result = $store->query("$fence SELECT n FROM fence WHERE path = '$claim->{path}'; COMMIT");
		if ($result->{error}) { $store->query('ROLLBACK'); $claim->{is_fenced_off} = 1; }
		else { $claim->{value} = $result->{rows}[0][0]; }
		return;
	}

	my $is_ok = $self->_write($store, 'fence', $fence, $claim, $claim->{value}, $claim->{token});
	if ($is_ok) { $claim->{value}++; }
	else { $claim->{is_fenced_off} = 1; }
	return;
}

# Writes the number that is there, plus one.
sub _write
{
	my ($self, $pg, $table, $before, $claim, $value, $token, @guards) = @_;
	my $wid = "$self->{who}.w" . ++$self->{count};
	my $next = $value + 1;
	my $result = $pg->query("$before UPDATE $table SET n = $next WHERE path = '$claim->{path}';"
		  . "INSERT INTO ${table}_audit VALUES ('$claim->{path}', $value, $token, '$wid')");
	my $is_in = !$result->{error};
	$result = $table eq 'guard' ? $self->_end('COMMIT', @guards) : $pg->query('COMMIT') if $is_in;
	$self->_record('write', t => $result->{t}, end => $result->{end}, store => $table,
		node => $table eq 'fence' ? $self->{store_server}->name : $self->{node}->name,
		path => $claim->{path}, value => $value, token => $token, claim => $claim->{id},
		wid => $wid, result => $is_in ? _fate($result) : 'fail', code => $result->{error} || undef);
	$pg->query('ROLLBACK') unless $is_in;
	return !$result->{error};
}

# In the transaction that is open: read, wait, write, commit.
sub _guarded
{
	my ($self, @claims) = @_;
	my ($claim) = grep { _is_exclusive($_) } @claims;
	my @in_xact = grep { $_->{scope} eq 'xact' } @claims;
	return $self->_end('COMMIT', @in_xact) unless $claim && _chance(0.7);

	if (!$claim->{token})
	{
		$self->_ask('token', $claim) or return $self->_end('ROLLBACK', @claims);
	}
	my $result = $self->_sql("SELECT n FROM guard WHERE path = '$claim->{path}'");
	return $self->_end('ROLLBACK', @claims) if $result->{error};
	_nap(0.15);
	return $self->_write($self->{pg}, 'guard', '', $claim, $result->{rows}[0][0], $claim->{token}, @claims);
}

# --- plays ---

sub _wait
{
	my $how = _pick(qw(try timeout timeout timeout cancel lock_timeout statement_timeout));
	return [ $how, $how eq 'try' ? 0 : 1 + int _pick(rand 50, rand 500, rand 500, rand 3000) ];
}

# The lock and how to acquire it: the arguments of acquire().
sub _choose
{
	my ($scope) = @_;
	my $path = _pick('/m1', '/m1', '/m2', '/m3', '/rw1', '/rw1', '/rw2', '/s1', '/s3', '/s3');
	my $lock = $paths{$path};
	return ($path, scope => $scope, wait => _wait(),
		$lock->{kind} eq 'rw' ? (mode => _pick(qw(read read write))) : (),
		$lock->{kind} eq 'semaphore' ? (quantity => 1 + int rand $lock->{n}) : (),
		$lock->{kind} ne 'semaphore' && _chance(0.1) ? (lease => 100 + int rand 750) : ());
}

sub _play
{
	my ($self) = @_;

	# One client of each server requests a lock that no other client of its server requests.
	return $self->_play_order if $self->{who} =~ /1$/ && _chance(0.3);

	if (_chance($self->{jobs})) { FaultJobs::play($self); }
	else
	{
		my $play = _pick(qw(session session session xact xact xact multilock savepoint reentrant downgrade command command));
		my $method = "_play_$play";
		$self->$method;
	}
	return unless $self->{pg}->is_alive;

	# However the play went wrong.
	$self->_sql('ROLLBACK');
	$self->_sql('SELECT zk_lock_release_all()');
	return;
}

sub _play_order
{
	my ($self) = @_;
	my $claim = $self->acquire('/fifo', scope => 'session', wait => [ 'timeout', 5000 ]) or return;
	usleep(rand 400_000);
	$self->_release($claim);
	return;
}

# When the lock was lost, the client may go on as if it had not noticed.
sub _play_session
{
	my ($self) = @_;
	my $claim = $self->acquire(_choose('session')) or return;
	if (_chance(0.4))
	{
		$self->_sql('BEGIN');
		$self->_guarded($claim);
	}
	$self->_hold($claim);
	$self->_fenced($claim) if _chance(0.3);
	$self->_release($claim);
	return;
}

sub _play_xact
{
	my ($self) = @_;
	$self->_sql('BEGIN');
	my $claim = $self->acquire(_choose('xact')) or return;
	$self->_hold($claim) if _chance(0.5);
	$self->_guarded($claim);
	return;
}

sub _play_multilock
{
	my ($self) = @_;
	my @paths = sort { $a->[1] <=> $b->[1] } map { [ $_, rand ] } qw(/m1 /m2 /m3);
	pop @paths if _chance(0.5);
	my $scope = _pick('session', 'xact');
	$self->_sql('BEGIN') if $scope eq 'xact';
	my @claims = $self->_acquire([ map { $_->[0] } @paths ], scope => $scope, wait => _wait()) or return;
	$self->_hold(@claims);
	if ($scope eq 'xact') { $self->_guarded(@claims); }
	else { $self->_release(@claims); }
	return;
}

sub _play_savepoint
{
	my ($self) = @_;
	$self->_sql('BEGIN; SAVEPOINT s');
	my $claim = $self->acquire(_choose('xact')) or return;
	$self->_hold($claim) or return;
	if (_chance(0.5))
	{
		$self->_end('ROLLBACK TO s', $claim);
		$claim = $self->acquire(_choose('xact')) or return;
	}
	else { $self->_sql('RELEASE s'); }
	$self->_guarded($claim);
	return;
}

# Acquired twice, in this or that scope: the claim ends with the last of the two.
sub _play_reentrant
{
	my ($self) = @_;
	my $path = _pick('/m1', '/m2');
	my $first = $self->acquire($path, scope => 'session', wait => _wait()) or return;
	$self->_ask('token', $first) or return;
	my $xact = _chance(0.5) ? 'xact_' : '';
	$self->_sql('BEGIN') if $xact;
	$self->_sql("SELECT zk_${xact}lock_acquire('$path', '1 s')")->{error} and return;
	$self->_ask('token', $first) or return;
	if ($xact)
	{
		$self->_hold($first);
		$self->_guarded($first);
	}
	else { $self->_sql("SELECT zk_lock_release('$path')"); }
	$self->_hold($first);
	$self->_release($first);
	return;
}

# As zklock-run --guard does it: one session has the lock, and another one commits under it.  The first may end just
# then.
sub _play_command
{
	my ($self) = @_;
	my $path = _pick('/m1', '/m2', '/rw1');
	my $claim = $self->acquire($path, mode => 'write', scope => 'session', wait => _wait()) or return;
	$self->_ask('token', $claim) or return;
	my $command = eval { PgWire->new($self->{node}->host, $self->{node}->port, "$self->{who}-command") } or return;
	my $result = $command->query("SET zklock.commit_under = '$claim->{token} $path'; BEGIN; SELECT n FROM guard WHERE path = '$path'");
	_nap(0.15);
	if (_chance(0.5))
	{
		$self->_over($claim);
		$self->{pg}->close;
	}
	if (!$result->{error})
	{
		local $self->{pg} = $command;
		_nap(0.15) if _chance(0.5);
		$self->_write($command, 'guard', '', $claim, $result->{rows}[0][0], $claim->{token}, $claim);
	}
	$command->close;
	return;
}

sub _play_downgrade
{
	my ($self) = @_;
	my $path = _pick('/rw1', '/rw2');
	my $writer = $self->acquire($path, mode => 'write', scope => 'session', wait => _wait()) or return;
	$self->_ask('token', $writer) or return;
	$self->_hold($writer);
	my $reader = $self->acquire($path, mode => 'read', scope => 'session', wait => [ 'timeout', 1000 ]) or return;
	$self->_release($writer);
	$self->_ask('token', $reader, same => $writer->{token}) or return;
	$self->_hold($reader);
	$self->_release($reader);
	return;
}

1;

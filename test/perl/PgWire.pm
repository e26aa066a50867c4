
=head1 NAME

PgWire - a PostgreSQL session in a few lines, for many clients at little cost

=head1 SYNOPSIS

	my $pg = PgWire->new($node->host, $node->port, 'c1');		# dies if it cannot connect
	my $result = $pg->query("SELECT zk_lock_acquire('/job')", cancel_after => 0.3);
	die $result->{message} if $result->{error};
	print $result->{rows}[0][0];

It speaks the simple query protocol, and what the calls below need, over a Unix socket, without passwords.  Compared with
psql, it needs no process, knows SQLSTATEs and when exactly each query began and ended,
and can cancel.

=cut

package PgWire;

use strict;
use warnings;

use Carp;
use IO::Socket::UNIX;
use Time::HiRes qw(CLOCK_MONOTONIC clock_gettime);

=head1 METHODS

=over

=item PgWire->new($directory, $port, $application, patience => 60)

Of the database C<postgres>.  Dies with a message that begins with the SQLSTATE, which is
08001 where no server listens.  C<patience> is how many seconds any answer may take.

=item $pg->query($sql, cancel_after => $seconds)

Returns a reference to a hash: C<rows> of the last statement; C<error>, the SQLSTATE of
the error, or the empty string; C<message> and C<detail>; C<notices>, the messages of notices and warnings; C<t> and C<end>, when it was sent and when the
answer was there, as L</PgWire::now>; C<status>, I if there is no transaction, T, or E.  A
COMMIT that turned out to be a ROLLBACK is an error.  What a COPY FROM STDIN wants is
C<< copy => $data >>.

When the connection is lost, C<error> is the last error that was told, or C<lost>.  If no
answer comes within the patience, it is C<hang>.  In both cases C<is_alive> is false.

=item $pg->queries(@sql)

Sends them all, and returns what C<query> returns of each.

=item $pg->call($oid)

The same for a function without arguments, called by the fast path.

=item $pg->bind($portal, $sql)

The same for a portal that is made for a query, in a transaction block, and not run.

=item $pg->execute($sql)

The same by the extended query protocol.

=item $pg->send(@messages), $pg->result

Sends messages of the protocol, each a reference to its type and its body; and the answer to these.
C<PgWire::extended($sql)> returns the messages of C<execute>.

=item $pg->is_alive, $pg->pid, $pg->close

=item PgWire::now

CLOCK_MONOTONIC in microseconds, which is one clock for all processes of the machine.

=back

=cut

sub now { return int(1e6 * clock_gettime(CLOCK_MONOTONIC)); }

sub new
{
	my ($class, $directory, $port, $application, %opt) = @_;
	my $self = bless {
		peer => "$directory/.s.PGSQL.$port",
		patience => $opt{patience} // 60,
		input => '',
	}, $class;
	$self->{socket} = IO::Socket::UNIX->new(Peer => $self->{peer}) or die "08001 $!\n";

	my $body = pack 'N', 196608;
	$body .= "$_\0" foreach qw(user postgres database postgres application_name), $application, '';
	syswrite $self->{socket}, pack('N', length($body) + 4) . $body;

	my $result = $self->_answer;
	die "$result->{error} $result->{message}\n" if $result->{error};
	return $self;
}

sub is_alive { my ($self) = @_; return defined $self->{socket}; }
sub pid { my ($self) = @_; return $self->{pid}; }

sub close
{
	my ($self) = @_;
	syswrite $self->{socket}, pack('aN', 'X', 4) if $self->{socket};
	delete $self->{socket};
	return;
}

sub query
{
	my ($self, $sql, %opt) = @_;
	local $SIG{PIPE} = 'IGNORE';
	my $t = now();
	return { t => $t, end => $t, error => 'lost', message => 'no connection', rows => [], status => 'I' }
	  unless $self->{socket};
	$self->{copy} = $opt{copy};
	syswrite $self->{socket}, _query($sql);
	return _judge($sql, $self->_answer($t, $opt{cancel_after}));
}

sub queries
{
	my ($self, @sql) = @_;
	local $SIG{PIPE} = 'IGNORE';
	syswrite $self->{socket}, join '', map { _query($_) } @sql;
	return map { _judge($_, $self->_answer) } @sql;
}

sub _query { my ($sql) = @_; return pack 'aNZ*', 'Q', length($sql) + 5, $sql; }

# The server does not call it an error that there was one before.
sub _judge
{
	my ($sql, $result) = @_;
	@$result{qw(error message)} = ('25P02', 'rolled back')
	  if !$result->{error} && $sql eq 'COMMIT' && $result->{tag} eq 'ROLLBACK';
	return $result;
}

sub call
{
	my ($self, $oid) = @_;
	syswrite $self->{socket}, pack('aNNnnn', 'F', 14, $oid, 0, 0, 0);
	return $self->_answer;
}

sub bind
{
	my ($self, $portal, $sql) = @_;
	$self->send(_parse($sql), _bind($portal, ''), [ S => '' ]);
	return $self->result;
}

sub execute
{
	my ($self, $sql) = @_;
	$self->send(extended($sql));
	return $self->result;
}

sub extended { my ($sql) = @_; return (_parse($sql), _bind('', ''), [ E => pack 'Z*N', '', 0 ], [ S => '' ]); }
sub _parse { my ($sql) = @_; return [ P => pack 'Z*Z*n', '', $sql, 0 ]; }
sub _bind { my ($portal, $statement) = @_; return [ B => pack 'Z*Z*nnn', $portal, $statement, 0, 0, 0 ]; }

sub send
{
	my ($self, @messages) = @_;
	syswrite $self->{socket}, join '', map { my ($type, $body) = @$_; pack('aN', $type, length($body) + 4) . $body } @messages;
	return;
}

sub result { my ($self) = @_; return $self->_answer; }

sub _answer
{
	my ($self, $t, $cancel_after) = @_;
	$t //= now();
	my %result = (t => $t, rows => [], notices => [], error => '', message => '', tag => '', status => 'I');
	my $cancel_at = defined $cancel_after ? $t + 1e6 * $cancel_after : undef;
	my $deadline = $t + 1e6 * $self->{patience};

	while ($self->{socket})
	{
		if (length $self->{input} >= 5)
		{
			my ($type, $length) = unpack 'aN', $self->{input};
			if (length $self->{input} > $length)
			{
				my $body = substr $self->{input}, 5, $length - 4;
				substr($self->{input}, 0, $length + 1) = '';
				last if $self->_message(\%result, $type, $body);
				next;
			}
		}

		my $now = now();
		if (defined $cancel_at && $now >= $cancel_at)
		{
			# A cancel that comes before the query has begun is in vain.
			$cancel_at = $now + 300_000;
			$self->_cancel;
		}
		$self->_lost(\%result, 'hang') if $now > $deadline;
		my $wait = (defined $cancel_at && $cancel_at < $deadline ? $cancel_at : $deadline) - $now;
		vec(my $ready = '', $self->{socket} ? fileno $self->{socket} : last, 1) = 1;
		next unless select($ready, undef, undef, $wait / 1e6) > 0;
		sysread($self->{socket}, $self->{input}, 65536, length $self->{input})
		  or $self->_lost(\%result, $result{error} || 'lost');
	}
	$result{end} = now();
	return \%result;
}

sub _lost
{
	my ($self, $result, $error) = @_;
	$result->{error} = $error;
	delete $self->{socket};
	return;
}

# True if the message was the last one of the answer.
sub _message
{
	my ($self, $result, $type, $body) = @_;
	if ($type eq 'Z')
	{
		$result->{status} = $body;
		return 1;
	}
	if ($type eq 'D')
	{
		my ($n, $at) = (unpack('n', $body), 2);
		my @row;
		foreach (1 .. $n)
		{
			my $length = unpack 'l>', substr $body, $at, 4;
			push @row, $length < 0 ? undef : substr $body, $at + 4, $length;
			$at += 4 + ($length < 0 ? 0 : $length);
		}
		push @{ $result->{rows} }, \@row;
	}
	elsif ($type eq 'G') { syswrite $self->{socket}, pack('aNa*aN', 'd', length($self->{copy}) + 4, $self->{copy}, 'c', 4); }
	elsif ($type eq 'T') { $result->{rows} = []; }
	elsif ($type eq 'C') { $result->{tag} = $body =~ s/\0//r; }
	elsif ($type eq 'K') { ($self->{pid}, $self->{key}) = unpack 'NN', $body; }
	elsif ($type =~ /[EN]/)
	{
		my %field = map { /^(.)(.*)/s ? ($1 => $2) : () } split /\0/, $body;
		if ($type eq 'N') { push @{ $result->{notices} }, $field{M}; }
		else { @$result{qw(error message detail)} = @field{qw(C M D)}; }
	}
	return 0;
}

# A cancel request has a connection of its own, and the only answer is the end of that connection.
sub _cancel
{
	my ($self) = @_;
	my $socket = IO::Socket::UNIX->new(Peer => $self->{peer}) or return;
	syswrite $socket, pack 'NNNN', 16, 80877102, $self->{pid}, $self->{key};
	return;
}

1;
